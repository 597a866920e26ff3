"""Opening files that may have become something else since they were listed."""

import os
from pathlib import Path

import pytest

from osmosis_ai.rollout._safe_fs import open_dir, open_regular


def test_b13_regular_files_only(tmp_path: Path) -> None:
    """A link, a pipe or a directory in a file's place is an error, and nothing blocks."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/dev/fd"))
    with open_dir(tmp_path) as fd:
        with open_regular(fd, "file") as file:
            assert file.read() == b"x"
        for name in ("link", "folder", "pipe", "missing"):
            with pytest.raises(OSError, match=name), open_regular(fd, name):
                pass
    assert len(os.listdir("/dev/fd")) == before


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Neither success nor failure leaves one open."""
    before = len(os.listdir("/dev/fd"))
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/link").symlink_to("b")
    with open_dir(tmp_path, ["a", "b"]):
        pass
    for names in (["a", "link"], ["a", "missing", "b"]):
        with pytest.raises(OSError, match=names[1]), open_dir(tmp_path, names):
            pass
    assert len(os.listdir("/dev/fd")) == before
