"""Locks that the kernel gives back: whoever holds one has, by that alone, shown to be alive.

They are `flock` locks. One belongs to an open file, not to a process, so two objects in one process are two holders, a
process that is killed has let go, and a child that was forked without `exec` holds along with its parent.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from tenure.embedded.private import open_private
from tenure.embedded.process import Account, EmbeddedPostgresError

with contextlib.suppress(ImportError):  # on Windows, where `start` says so before any of this runs
    import fcntl

# A start takes about a second, a stop a tenth: short enough not to be felt, long enough to cost nothing.
_POLL_SECONDS = 0.02


def open_lock(path: Path, account: Account) -> FileIO:
    """Opens or makes a lock file, 0600 and the account's. A started program inherits it only when told to."""
    file = open_private(path, os.O_RDWR | os.O_CREAT)
    if account.is_other:
        os.fchown(file.fileno(), account.uid, account.gid)
    return file


def try_exclusive(file: FileIO) -> bool:
    """Takes the lock alone, or upgrades a shared one; False when somebody else holds it (a shared one is then lost)."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(file: FileIO) -> None:
    """Takes the lock along with others. Callers make sure that nobody holds it alone."""
    fcntl.flock(file, fcntl.LOCK_SH)


def release(file: FileIO) -> None:
    """Lets go and closes. The explicit unlock frees it even where a forked child still has the file open."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


@contextlib.contextmanager
def exclusive(path: Path, account: Account, *, timeout: float) -> Iterator[FileIO]:
    """Holds the lock alone for the block. ``timeout`` in seconds; raises EmbeddedPostgresError."""
    file = open_lock(path, account)
    try:
        deadline = time.monotonic() + timeout
        while not try_exclusive(file):
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"another process has been starting or stopping the server for {timeout:.0f} seconds: "
                    f"see which (fuser -v {path})"
                )
            time.sleep(_POLL_SECONDS)
        yield file
    finally:
        release(file)
