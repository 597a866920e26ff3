"""Per-rollout directories: `<root>/<rollout id>/`, with user files in `artifacts/` below.

User code may put anything there: links, pipes, directories in the place of the server's files.
Every function here stays below the root whatever it finds. All of them block; call them off the
event loop.
"""

import errno
import logging
import mimetypes
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from osmosis_ai.rollout._safe_fs import (
    make_child,
    open_below,
    open_child,
    open_dir,
    open_regular,
    reclaim_child,
    replace_at,
    scratch_name,
)
from osmosis_ai.rollout.types.segment import check_path_segment

ARTIFACT_ROOT_VARIABLE = "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"

_DEFAULT_ROOT = "~/.osmosis"
_USER_DIR = "artifacts"
# Deeper trees are somebody's joke, and cost the square of their depth.
_MAX_DEPTH = 64
_PREVIOUS = re.compile(r"previous-[0-9]+")
_NO_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

# Without the host's own tables, so that a file has the same type everywhere.
_MEDIA_TYPES = mimetypes.MimeTypes()
_UNKNOWN_TYPE = "application/octet-stream"

type Writer = Callable[[BinaryIO], object]
"""Writes a file's content into the open file."""

type _Entry = tuple[PurePosixPath, os.stat_result]

_log = logging.getLogger(__name__)


def artifact_root_from_env() -> Path:
    """Return the absolute directory that holds the rollouts' folders; it need not exist yet.

    It is `_OSMOSIS_ROLLOUT_ARTIFACT_ROOT`, else `~/.osmosis`.
    """
    chosen = Path(os.environ.get(ARTIFACT_ROOT_VARIABLE) or _DEFAULT_ROOT)
    try:
        return chosen.expanduser().absolute()
    except RuntimeError:
        # A process whose user has no home, as in some containers: its home counts as `/`.
        return Path("/", *chosen.parts[1:])


def rollout_dir(root: Path, rollout_id: str) -> Path:
    """Return the rollout's folder, directly below `root`; nothing is created.

    Raises:
        ValueError: the id is no plain path segment.
    """
    return root / check_path_segment(rollout_id)


def prove_writable(root: Path) -> None:
    """Create `root` where needed and write a file into it, which is removed again.

    Raises:
        OSError: the root cannot be written to.
    """
    with open_dir(root, missing="create") as fd:
        name = scratch_name()
        replace_at(fd, name, b"writable")
        os.unlink(name, dir_fd=fd)


def provision(root: Path, rollout_id: str, *, fresh: bool = True) -> Path:
    """Make the rollout's folder and the directory for user files in it.

    Args:
        root: The directory that holds the rollouts' folders.
        rollout_id: The rollout's id.
        fresh: Whether what an earlier rollout of this id left behind is set aside (`set_aside`).

    Returns:
        The directory for user files.

    Raises:
        OSError: the directories cannot be made.
        ValueError: the id is no plain path segment.
    """
    directory = rollout_dir(root, rollout_id) / _USER_DIR
    if make_child(root, rollout_id, _USER_DIR):
        return directory
    if fresh:
        set_aside(root, rollout_id)
    with open_dir(root, [rollout_id, _USER_DIR], missing="reclaim"):
        return directory


def set_aside(root: Path, rollout_id: str) -> Path | None:
    """Move what is in the rollout's folder to `previous-<n>/` in it, n counting up from 1.

    Returns:
        The folder with the old content, or None when there was none.

    Raises:
        OSError: the content cannot be moved.
        ValueError: the id is no plain path segment.
    """
    folder = rollout_dir(root, rollout_id)
    with ExitStack() as opened:
        try:
            fd = opened.enter_context(open_dir(root, [rollout_id]))
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            return None
        old = [name for name in os.listdir(fd) if not _PREVIOUS.fullmatch(name)]
        if not old:
            return None
        previous = _make_previous(fd)
        for name in old:
            os.rename(name, f"{previous}/{name}", src_dir_fd=fd, dst_dir_fd=fd)
    _log.warning(
        "The rollout id %s was used before: its old files were moved to %s.", rollout_id, previous
    )
    return folder / previous


def _make_previous(parent: int) -> str:
    number = 1
    while True:
        name = f"previous-{number}"
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            number += 1
        else:
            return name


class RolloutFolder:
    """The server's own files in a rollout's folder; a context manager that keeps it open.

    They take the place of whatever user code put there: a link or a file in the place of the folder
    is removed; in the place of a file, links, pipes and files are replaced, never written through,
    and a directory is renamed to `<name>.displaced-<n>`. The folder is made when something is
    written into it.

    Args:
        root: The directory that holds the rollouts' folders.
        rollout_id: The rollout's id.

    Raises:
        ValueError: the id, or a name that a method is given, is no plain path segment.
    """

    def __init__(self, root: Path, rollout_id: str) -> None:
        self._root = root
        self._id = check_path_segment(rollout_id)
        self._fd: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def replace(self, name: str, data: bytes | Writer) -> None:
        """Write a file, atomically.

        Args:
            name: The file's name, or a path below the folder with `/` between its parts.
            data: The whole content, or what writes it into an open file, possibly twice.

        Raises:
            OSError: the file cannot be written.
        """
        *parents, last = _parts(name)
        with open_below(self._made(), parents, missing="reclaim") as fd:
            try:
                replace_at(fd, last, data)
            except IsADirectoryError:
                _displace(fd, last)
                replace_at(fd, last, data)

    def remove(self, name: str) -> None:
        """Remove a file, or a link in its place; a directory is renamed. None of them need exist.

        Raises:
            OSError: it cannot be removed.
        """
        check_path_segment(name)
        fd = self._found()
        if fd is None:
            return
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                _displace(fd, name)
            else:
                os.unlink(name, dir_fd=fd)

    def displace(self, names: Iterable[str]) -> None:
        """Rename whatever has one of these names to `<name>.displaced-<n>`. None need exist.

        For names of the server's own under which it has written nothing: what is there passes for
        the server's content but is user code's. Links are renamed, never followed. Each renaming is
        a warning in the log.

        Raises:
            OSError: something cannot be renamed.
        """
        fd = self._found()
        if fd is None:
            return
        # One look at the folder, which holds little, costs less than one for each name. Some file
        # systems do not tell upper from lower case.
        there = {name.casefold() for name in os.listdir(fd)}
        for name in map(check_path_segment, names):
            if name.casefold() not in there:
                continue
            with suppress(FileNotFoundError):
                displaced = _displace(fd, name)
                _log.warning(
                    "Rollout %s: %s was not written by the server; it is %s now.",
                    self._id,
                    name,
                    displaced,
                )

    def _found(self) -> int | None:
        """Return the folder's descriptor, or None when there is no folder."""
        if self._fd is None:
            try:
                self._fd = open_child(self._root, self._id)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno not in _NO_DIRECTORY:
                    raise
                return self._made()
        return self._fd

    def _made(self) -> int:
        """Return the folder's descriptor; the folder is made where there is none."""
        if self._fd is None:
            self._fd = reclaim_child(self._root, self._id)
        return self._fd


def read_file(root: Path, relative: str) -> bytes:
    """Read the regular file at `root`/`relative`, with no link on the way to it.

    Raises:
        OSError: it cannot be read, is no regular file, or a link is on the way to it.
        ValueError: a part of `relative` is no plain path segment.
    """
    *parents, last = _parts(relative)
    with open_dir(root, parents) as fd, open_regular(fd, last) as file:
        return file.read()


def _displace(parent: int, name: str) -> str:
    taken = set(os.listdir(parent))
    number = 1
    while (displaced := f"{name}.displaced-{number}") in taken:
        number += 1
    os.rename(name, displaced, src_dir_fd=parent, dst_dir_fd=parent)
    return displaced


def list_files(root: Path, relative: str) -> list[PurePosixPath]:
    """List the regular files of the tree at `root`/`relative`, sorted, relative to that tree.

    Links are never followed. Links, pipes, sockets and devices are left out, with a log line each;
    so are a file that has another name (a hard link) outside of the tree, and what lies deeper
    than 64 levels.

    Raises:
        OSError: there is no such directory, or a link is on the way to it from `root`.
        ValueError: a part of `relative` is no plain path segment.
    """
    found = _regular(_walk(root, _parts(relative)))
    outside = _linked_from_outside(found)
    for path in outside:
        _log.warning("Left out %r: it is a hard link to a file outside of its tree.", str(path))
    return sorted(found.keys() - outside)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a rollout's folder.

    Attributes:
        path: Its path, relative to the rollout's folder.
        size: Its size in bytes.
        media_type: What its name says of its content, `application/octet-stream` when nothing.
        is_safe: Whether it may be opened: a regular file that is no name of a file outside of the
            folder. Links, pipes, sockets and devices are not. User code may change it at any
            moment, so open it with `read_file`, which looks again.
    """

    path: PurePosixPath
    size: int
    media_type: str
    is_safe: bool


def list_artifacts(root: Path, rollout_id: str) -> list[Artifact]:
    """List all that is in the rollout's folder, sorted by path; no link is followed.

    Directories are not entries of their own, except where a tree is cut off at 64 levels.

    Raises:
        OSError: there is no such folder, or a link is in its place.
        ValueError: the id is no plain path segment.
    """
    found = dict(_walk(root, [check_path_segment(rollout_id)]))
    safe = _regular(found.items())
    unsafe = found.keys() - safe.keys() | _linked_from_outside(safe)
    return [
        Artifact(path, info.st_size, _media_type(path), is_safe=path not in unsafe)
        for path, info in sorted(found.items())
    ]


def _media_type(path: PurePosixPath) -> str:
    kind, encoding = _MEDIA_TYPES.guess_type(path.name)
    return _UNKNOWN_TYPE if kind is None else f"application/{encoding}" if encoding else kind


def _regular(entries: Iterable[_Entry]) -> dict[PurePosixPath, os.stat_result]:
    regular: dict[PurePosixPath, os.stat_result] = {}
    for path, info in entries:
        if stat.S_ISREG(info.st_mode):
            regular[path] = info
        else:
            _log.warning("Left out %r: it is no regular file.", str(path))
    return regular


def _linked_from_outside(files: Mapping[PurePosixPath, os.stat_result]) -> set[PurePosixPath]:
    names = Counter((info.st_dev, info.st_ino) for info in files.values())
    return {path for path, info in files.items() if info.st_nlink > names[info.st_dev, info.st_ino]}


def copy_tree(root: Path, relative: str, target_root: Path, target: str) -> list[PurePosixPath]:
    """Copy the files that `list_files` names to `target_root`/`target`, each one atomically.

    Files that vanish or change their kind meanwhile are left out, with a log line.

    Returns:
        The copied files, relative to both trees.

    Raises:
        OSError: the source is not there, or a link is on the way to it; the target cannot be
            written; a link is anywhere in the target path below `target_root`.
        ValueError: a part of `relative` or `target` is no plain path segment.
    """
    source_parts, target_parts = _parts(relative), _parts(target)
    copied: list[PurePosixPath] = []
    for path in list_files(root, relative):
        folder = path.parts[:-1]
        with ExitStack() as opened:
            try:
                source_fd = opened.enter_context(open_dir(root, [*source_parts, *folder]))
                source = opened.enter_context(open_regular(source_fd, path.name))
            except OSError as error:
                _log.warning("Left out %r: %s.", str(path), error.strerror)
                continue
            into = [*target_parts, *folder]
            target_fd = opened.enter_context(open_dir(target_root, into, missing="create"))
            replace_at(target_fd, path.name, partial(shutil.copyfileobj, source))
        copied.append(path)
    return copied


def _walk(root: Path, top: list[str]) -> Iterator[_Entry]:
    """Yield whatever the tree holds besides directories, and the directories it is cut off at."""
    folders: list[tuple[str, ...]] = [()]
    while folders:
        folder = folders.pop()
        try:
            with open_dir(root, [*top, *folder]) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    path = PurePosixPath(*folder, entry.name)
                    if entry.is_dir(follow_symlinks=False) and len(path.parts) < _MAX_DEPTH:
                        folders.append(path.parts)
                    elif info := _stat(entry, path):
                        yield path, info
        except OSError as error:
            if not folder:
                raise
            _log.warning("Left out %r: %s.", "/".join(folder), error.strerror)


def _stat(entry: os.DirEntry[str], path: PurePosixPath) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:  # it is gone; what is beside it must not go with it
        _log.warning("Left out %r: %s.", str(path), error.strerror)
        return None


def _parts(relative: str) -> list[str]:
    return [check_path_segment(part) for part in relative.split("/")]
