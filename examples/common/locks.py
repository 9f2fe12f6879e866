"""Locks on directories that are held as long as a process lives, even if it is killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator

from examples.common import files
from examples.common.command_line import UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

# Environment variable with the descriptor of a lock that a parent process took for this one.
INHERITED = "TFP_LARS_LOCK"


def take(directory: pathlib.Path) -> int | None:
    """Locks a directory for this process and for children that inherit the descriptor.

    The lock ends when all of these processes have closed the descriptor or ended. It is advisory:
    it keeps out only those who take it, too. Where the system has no such locks, it always
    succeeds.

    Args:
      directory: Existing directory, which gets a file `lock` with the number of the process.

    Returns:
      descriptor: Open file descriptor, or `None` if another process holds the lock.
    """
    # A link could lead to a file of somebody else, which the number would overwrite.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(directory / "lock", flags, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sign(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def held(directory: pathlib.Path) -> Iterator[None]:
    """Holds the lock of a directory, or the one that the parent process took for this one.

    Args:
      directory: Directory to lock. It is created if it is missing.

    Raises:
      UserError: Another process holds the lock. The message has its number.
    """
    with files.explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        inherited = _inherited(directory)
        descriptor = take(directory) if inherited is None else os.dup(inherited)
    if descriptor is None:
        raise UserError(
            f"{directory} is in use by process {holder(directory)}: wait until it ends, or name "
            "another directory."
        )
    try:
        yield
    finally:
        os.close(descriptor)


def holder(directory: pathlib.Path) -> str:
    """Returns the number of the process that took the lock last."""
    try:
        return str(int((directory / "lock").read_text()))
    except (OSError, ValueError):
        return "of unknown number"


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, b"%d\n" % os.getpid())


def _inherited(directory: pathlib.Path) -> int | None:
    """Returns the descriptor of an inherited lock if it is the lock of this directory."""
    try:
        descriptor = int(os.environ[INHERITED])
        if not os.path.samestat(os.fstat(descriptor), (directory / "lock").lstat()):
            return None
        _sign(descriptor)
    except (KeyError, ValueError, OSError):
        return None
    return descriptor
