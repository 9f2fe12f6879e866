"""Locks on directories that are held as long as a process lives, even if it is killed."""

from __future__ import annotations

import os
import pathlib

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def take(directory: pathlib.Path) -> int | None:
    """Locks a directory for this process and for children that inherit the descriptor.

    The lock ends when all of these processes have closed the descriptor or ended. It is advisory:
    it keeps out only those who take it, too. Where the system has no such locks, it always
    succeeds.

    Args:
      directory: Existing directory, which gets a file `lock`.

    Returns:
      descriptor: Open file descriptor, or `None` if another process holds the lock.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
