"""File operations below a trusted directory that never pass through a link (POSIX).

What lies below the directory may be changed by other code at any moment, so nothing is looked at
first and used later by its path: every directory is opened by name, relative to its open parent,
with `O_NOFOLLOW`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from osmosis_ai.rollout.types.segment import RESERVED_PREFIX

type Missing = Literal["fail", "create", "reclaim"]
"""What to do about a directory that is not there: fail, create it (and fail when something else is
in its place), or create it and remove a link or file that is in its place."""

_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})
# Other code may put a link back as fast as it is removed; it loses the race or gets an error. One
# that is removed takes two attempts: that, and making the directory.
_RECLAIM_ATTEMPTS = 6


@contextmanager
def open_dir(root: Path, names: Iterable[str] = (), *, missing: Missing = "fail") -> Generator[int]:
    """Open the directory that is reached from `root` by `names`, none of them a link.

    Yields:
        The directory's file descriptor, closed afterwards.

    Raises:
        OSError: there is no such directory, or a component is a link or no directory.
    """
    fd = _open_root(root, missing)
    try:
        for name in names:
            parent, fd = fd, _enter(fd, name, missing)
            os.close(parent)
        yield fd
    finally:
        os.close(fd)


def make_dirs(parent: int, name: str, inner: str) -> bool:
    """Make the directory `name` in the open directory `parent`, and `inner` in it.

    Returns:
        False if there is something of that name already; then nothing is made.

    Raises:
        OSError: a directory cannot be made.
    """
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return False
    fd = _open_at(parent, name)
    try:
        os.mkdir(inner, dir_fd=fd)
    finally:
        os.close(fd)
    return True


def _open_root(root: Path, missing: Missing) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        return os.open(root, flags)
    except OSError:
        if missing == "fail":
            raise
    root.mkdir(parents=True, exist_ok=True)  # its error says more, of a file in the place
    return os.open(root, flags)


def _enter(parent: int, name: str, missing: Missing) -> int:
    if missing == "fail":
        return _open_at(parent, name)
    for _ in range(_RECLAIM_ATTEMPTS):
        # Opened before it is made: most are there, and making one in vain can be dear.
        try:
            return _open_at(parent, name)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        except OSError as error:
            if missing != "reclaim" or error.errno not in _NOT_A_DIRECTORY:
                raise
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
    return _open_at(parent, name)


def _open_at(parent: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


@contextmanager
def open_regular(parent: int, name: str) -> Generator[BinaryIO]:
    """Open the regular file `name` of the open directory `parent` for reading.

    Raises:
        OSError: there is no such file, or it is a link, a directory, a pipe, a socket or a device.
    """
    # O_NONBLOCK: a pipe would block until something writes to it.
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    with open(fd, "rb") as file:
        yield file


def replace_at(parent: int, name: str, write: Callable[[BinaryIO], object]) -> None:
    """Write a file into the open directory `parent` and put it in the place of `name`, atomically.

    Args:
        parent: The directory's file descriptor.
        name: The file's name. A link of that name is replaced, its target stays as it is.
        write: Called with the open file.

    Raises:
        OSError: the file cannot be written, or `name` is a directory.
    """
    temporary = scratch_name()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent)
    try:
        with open(fd, "wb") as file:
            write(file)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def scratch_name() -> str:
    """Return a name that is free for a temporary file, and that no rollout can have as its id."""
    return f"{RESERVED_PREFIX}-{secrets.token_hex(8)}"
