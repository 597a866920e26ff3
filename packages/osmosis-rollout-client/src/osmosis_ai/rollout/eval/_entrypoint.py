"""Entrypoints: what a run serves, and what it is made of."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.rollout.eval._errors import EvalError

_INTERPRETERS = ("bin/python", "Scripts/python.exe")


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """An app by reference, or a script that serves one.

    Attributes:
        folder: The directory to import from.
        reference: `module:attribute`, or the script's name.
    """

    folder: Path
    reference: str

    @classmethod
    def parse(cls, text: str) -> "Entrypoint":
        """Read `path/to/main.py:app`, `package.module:app` or `path/to/main.py`.

        Raises:
            EvalError: it is none of them, or the file is not there.
        """
        target, colon, attribute = text.rpartition(":")
        if text.endswith(".py"):
            target, colon, attribute = text, "", ""
        elif not target or not attribute.replace(".", "").isidentifier():
            msg = (
                f"{text!r} is no entrypoint: write main.py:app or package.module:app, or the name "
                "of a script that serves"
            )
            raise EvalError(msg)
        if not target.endswith(".py"):
            return cls(Path.cwd(), text)
        file = Path(target).absolute()
        if not file.is_file():
            msg = f"{target}: there is no such file to serve"
            raise EvalError(msg)
        return cls(file.parent, f"{file.stem}:{attribute}" if colon else file.name)

    @property
    def is_script(self) -> bool:
        """Whether it serves by itself, on the port that its environment names."""
        return self.reference.endswith(".py")

    def python(self) -> Path:
        """Return the interpreter of the project that it belongs to, else the running one.

        That is the `.venv` in its folder, or in one above it up to that of the `pyproject.toml`.
        """
        folders = [self.folder, *self.folder.parents]
        projects = [folder for folder in folders if (folder / "pyproject.toml").is_file()]
        within = folders[: folders.index(projects[0]) + 1] if projects else folders[:1]
        for folder in within:
            for name in _INTERPRETERS:
                if (python := folder / ".venv" / name).is_file():
                    return python
        return Path(sys.executable)

    def digest(self) -> str:
        """Return a digest of the project's own code: it changes when the code does.

        That is the modules in the folder, and the packages in it with all that is in them.
        """
        digest = hashlib.sha256()
        for path in sorted(_modules(self.folder)):
            name = path.relative_to(self.folder).as_posix()
            digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


def _modules(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        path = Path(entry.path)
        if entry.is_file() and path.suffix == ".py":
            yield path
        elif entry.is_dir(follow_symlinks=False) and (path / "__init__.py").is_file():
            yield from _modules(path)
