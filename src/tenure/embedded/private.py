"""Folders and files that nobody else may read, made safely where root works inside another account's folder.

The server's account may put a link anywhere in its own folder. So root follows no link there, and changes owners and
modes through descriptors only.
"""

import contextlib
import os
import stat
from io import FileIO
from pathlib import Path

from tenure.embedded.process import Account, EmbeddedPostgresError


def private_folder(path: Path, account: Account) -> Path:
    """Makes the folder, or checks the one there: no link, ours or the account's. 0700 either way.

    Raises EmbeddedPostgresError when it is another user's.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise EmbeddedPostgresError(f"{path} must be a folder and is not one: move it away") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid not in (os.geteuid(), account.uid):
            raise EmbeddedPostgresError(not_ours(path))
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
        if account.is_other and (found.st_uid, found.st_gid) != (account.uid, account.gid):
            os.fchown(descriptor, account.uid, account.gid)
    finally:
        os.close(descriptor)
    return path


def open_private(path: Path, flags: int) -> FileIO:
    """Opens a file that is no link; a new one is 0600. ``flags`` are those of `os.open`."""
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "rb+"}[flags & (os.O_WRONLY | os.O_RDWR)]
    return FileIO(str(path), mode, opener=lambda name, _: os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def write_private(path: Path, text: str, account: Account, *, by_way_of: Path) -> None:
    """Writes a 0600 file that belongs to the account, whole or not at all, through a side file in ``by_way_of``."""
    side = by_way_of / f"{path.name}.new"
    side.unlink(missing_ok=True)
    with open_private(side, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        file.write(text.encode())
        os.fsync(file.fileno())
        if account.is_other:
            os.fchown(file.fileno(), account.uid, account.gid)
    side.replace(path)


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def not_ours(path: Path) -> str:
    """What to say about a folder that belongs to somebody else."""
    return f"{path} belongs to another user: start Tenure as that user, or choose another data directory"
