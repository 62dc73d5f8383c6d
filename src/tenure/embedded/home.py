"""Where the cluster lives: a private folder, owned by the account the server runs as, and a short path for the socket.

::

    root/                  0700
    ├── data/              the cluster itself
    ├── sock/              the Unix socket, when the path is short enough
    ├── log/               the server's log, a file an hour, a day of them
    ├── password           0600, of the role `tenure`
    ├── starting.lock      held while somebody starts or stops the server
    ├── users.lock         held (shared) by every process that uses the server
    ├── server.lock        held by the server's own processes
    └── elsewhere          only when root's parents are closed to the account: a link to where all of the above is
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path

from tenure.embedded.private import not_ours, private_folder
from tenure.embedded.process import Account, EmbeddedPostgresError, account_for, first_unreachable

logger = logging.getLogger("tenure.embedded")

SOCKET_NAME = ".s.PGSQL.5432"
POINTER = "elsewhere"
MARKS = frozenset({"data", "starting.lock", POINTER})
"""What a root of ours holds from its first moments on: a folder with other things in it is not taken over."""

_SHELF = Path("/var/lib/tenure-embedded")
# The system's limit is 107 bytes on Linux and 103 on macOS.
_SOCKET_PATH_MAX = 103
# What neither a URL, nor libpq's and SQLAlchemy's lists of hosts, nor postgresql.conf could misread.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+\Z")
# pg_ctl puts the paths between double quotes in a shell's command line.
_UNQUOTABLE = frozenset('"$`\\\n')


def known_home(root: Path) -> Path:
    """Where the cluster of ``root`` is, as far as that is decided; changes nothing."""
    pointer = root / POINTER
    return Path(os.readlink(pointer)) if os.path.islink(pointer) else root


def open_home(root: Path) -> tuple[Path, Account]:
    """Makes or finds the folder that holds the cluster of ``root``, and says whose it is.

    That is ``root`` itself, unless we are root and the account that the server must run as cannot get there: then it is
    a folder below ``/var/lib/tenure-embedded``, and ``root/elsewhere`` links to it. Folders that exist already keep
    their modes, except ``root`` itself. Raises EmbeddedPostgresError when the place cannot be used.
    """
    if _UNQUOTABLE & set(str(root)):
        raise EmbeddedPostgresError(
            f"PostgreSQL cannot start in {root}: choose a path without quotes, $, ` and backslashes"
        )
    _make_root(root)
    pointer = root / POINTER
    if pointer.is_symlink():
        return _follow(pointer)
    account = account_for(root / "data", root)
    if account.is_other and (blocked := first_unreachable(root.parent, account)) is not None:
        return _move_elsewhere(root, blocked, account), account
    private_folder(root, account)
    return root, account


def socket_folder(home: Path, account: Account) -> Path:
    """A private folder for the socket: in ``home``, or, when that path is too long, below the temporary folder."""
    inside = home / "sock"
    if _fits(inside):
        return private_folder(inside, account)
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108 - checked to be private
        outside = Path(parent, f"tenure-{account.uid}-{digest}")
        if _fits(outside) and first_unreachable(outside.parent, account) is None:
            return private_folder(outside, account)
    raise EmbeddedPostgresError(f"no path short enough for a Unix socket: choose a shorter data directory than {home}")


def _make_root(root: Path) -> None:
    missing = [folder for folder in root.parents if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            continue
        if os.geteuid() == 0:
            # Ours to open, since we made it; a strict umask would close the way for the server's account.
            folder.chmod(0o755)
    try:
        root.mkdir(mode=0o700)
        return
    except FileExistsError:
        pass
    if os.geteuid() not in (0, root.stat().st_uid):
        raise EmbeddedPostgresError(not_ours(root))
    names = set(os.listdir(root))
    if names and not names & MARKS:
        raise EmbeddedPostgresError(
            f"{root} holds other files ({', '.join(sorted(names)[:3])} …): choose an empty or a new folder"
        )


def _follow(pointer: Path) -> tuple[Path, Account]:
    if pointer.parent.stat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(not_ours(pointer.parent))
    home = Path(os.readlink(pointer))
    if not home.is_dir():
        raise EmbeddedPostgresError(
            f"the database of {pointer.parent} is kept in {home}, and that folder is gone. "
            f"Bring it back, or remove {pointer} to begin with an empty database"
        )
    account = account_for(home / "data", home)
    return private_folder(home, account), account


def _move_elsewhere(root: Path, blocked: Path, account: Account) -> Path:
    """Chooses a folder that the account can reach. Only for a new cluster, and only from the same volume."""
    mends = (
        f"Choose a data directory outside {blocked}, or let others pass through it (chmod o+x {blocked}), "
        "or start Tenure as an ordinary user"
    )
    unreachable = f"PostgreSQL has to run as user {account.name!r}, who cannot enter {blocked}"
    if (root / "data").exists():
        raise EmbeddedPostgresError(f"{unreachable}, and the database is in {root}. {mends}")
    if root.stat().st_dev != blocked.stat().st_dev:
        # A volume was mounted here so that the data are kept on it: not a thing to decide against.
        raise EmbeddedPostgresError(f"{unreachable}, and {root} is a volume of its own. {mends}")
    try:
        _SHELF.mkdir(mode=0o711, parents=True, exist_ok=True)
        closed = first_unreachable(_SHELF, account)
    except OSError:
        closed = _SHELF
    if closed is not None:
        raise EmbeddedPostgresError(f"{unreachable}, nor {closed}. {mends}")
    home = Path(tempfile.mkdtemp(prefix=f"{root.name.lstrip('.') or 'root'}-", dir=_SHELF))
    (home / "belongs-to").write_text(f"{root}\n")
    private_folder(home, account)
    root.chmod(0o700)
    try:
        (root / POINTER).symlink_to(home)
    except FileExistsError:  # another process was first
        shutil.rmtree(home)
        return Path(os.readlink(root / POINTER))
    logger.warning("%s; the embedded database of %s is kept in %s", unreachable, root, home)
    return home


def _fits(folder: Path) -> bool:
    path = str(folder / SOCKET_NAME)
    return len(os.fsencode(path)) <= _SOCKET_PATH_MAX and _PLAIN_PATH.match(path) is not None
