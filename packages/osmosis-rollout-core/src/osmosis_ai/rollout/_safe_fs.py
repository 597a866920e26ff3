"""File operations below a trusted directory that never pass through a link (POSIX).

What lies below the directory may be changed by other code at any moment, so nothing is looked at
first and used later by its path: every directory is opened by name, relative to its open parent,
with `O_NOFOLLOW`.
"""

import errno
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from osmosis_ai.rollout.types.segment import RESERVED_PREFIX

# Drawn once, since each draw is a call into the system. A forked process has a pid of its own.
_PROCESS_TOKEN = secrets.token_hex(8)
_numbers = itertools.count()

type Missing = Literal["fail", "create", "reclaim"]
"""What to do about a directory that is not there: fail, create it (and fail when something else is
in its place), or create it and remove a link or file that is in its place."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
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
        with open_below(fd, names, missing=missing) as inner:
            yield inner
    finally:
        os.close(fd)


@contextmanager
def open_below(parent: int, names: Iterable[str], *, missing: Missing) -> Generator[int]:
    """Open the directory that is reached from an open one by `names`, none of them a link.

    Yields:
        The directory's file descriptor, closed afterwards; `parent` itself without any names.

    Raises:
        OSError: there is no such directory, or a component is a link or no directory.
    """
    fd = parent
    try:
        for name in names:
            above, fd = fd, _enter(fd, name, missing)
            if above != parent:
                os.close(above)
        yield fd
    finally:
        if fd != parent:
            os.close(fd)


def open_child(root: Path, name: str) -> int:
    """Return a file descriptor of the directory `name` directly below `root`.

    Raises:
        OSError: there is no such directory, or a link or something else is in its place.
    """
    # The last component is the only one that is not trusted: one call will do. Joined as text, at
    # a fraction of a path object's price.
    return os.open(os.path.join(root, name), _DIRECTORY | os.O_NOFOLLOW)


def reclaim_child(root: Path, name: str) -> int:
    """Return a file descriptor of the directory `name` directly below `root`, made where needed.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(OSError):
        return open_child(root, name)
    top = _open_root(root, "create")
    try:
        return _enter(top, name, "reclaim")
    finally:
        os.close(top)


def make_child(root: Path, name: str, inner: str) -> bool:
    """Make the directory `name` directly below `root`, and `inner` in it.

    Returns:
        False if there is something of that name already; then nothing is made.

    Raises:
        OSError: a directory cannot be made.
    """
    try:
        os.mkdir(os.path.join(root, name))
    except FileExistsError:
        return False
    except FileNotFoundError:
        root.mkdir(parents=True, exist_ok=True)
        return make_child(root, name, inner)
    fd = open_child(root, name)
    try:
        os.mkdir(inner, dir_fd=fd)
    finally:
        os.close(fd)
    return True


def _open_root(root: Path, missing: Missing) -> int:
    try:
        return os.open(root, _DIRECTORY)
    except OSError:
        if missing == "fail":
            raise
    root.mkdir(parents=True, exist_ok=True)  # its error says more, of a file in the place
    return os.open(root, _DIRECTORY)


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
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


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


def replace_at(parent: int, name: str, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file into the open directory `parent` and put it in the place of `name`, atomically.

    Args:
        parent: The directory's file descriptor.
        name: The file's name. A link of that name is replaced, its target stays as it is.
        data: The whole content, or what writes it into the open file.

    Raises:
        OSError: the file cannot be written, or `name` is a directory.
    """
    temporary = scratch_name()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent)
    try:
        if isinstance(data, bytes):
            _write_all(fd, data)
        else:
            with open(fd, "wb") as file:
                data(file)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _write_all(fd: int, data: bytes) -> None:
    # Every call into the system lets another thread of the process run, and waits for it
    # afterwards: a file object would make several.
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def scratch_name() -> str:
    """Return a name that is free for a temporary file, and that no rollout can have as its id."""
    return f"{RESERVED_PREFIX}-{_PROCESS_TOKEN}-{os.getpid()}-{next(_numbers)}"
