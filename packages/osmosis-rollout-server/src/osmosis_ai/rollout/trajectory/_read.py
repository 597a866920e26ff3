"""Documents from files, plain or compressed."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Final

from osmosis_ai.rollout.trajectory._models import Trajectory

_GZIP_MAGIC: Final = b"\x1f\x8b"


def read_trajectory(path: str | os.PathLike[str]) -> Trajectory:
    """Read an ATIF document of any version from a file, which may be compressed with gzip.

    Format: https://www.harborframework.com/docs/agents/trajectory-format

    Raises:
        OSError: the file cannot be read.
        ValueError: the compressed data is damaged.
        pydantic.ValidationError: the file holds no valid document; its errors name the step
            (`steps.<index>`, from 0) and the field.
    """
    data = Path(path).read_bytes()
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            msg = f"{os.fspath(path)} is damaged: its compressed data cannot be read"
            raise ValueError(msg) from error
    return Trajectory.model_validate_json(data)
