"""Is the server of this data folder alive? Asked of the socket; a process number alone proves nothing.

After a reboot the number in ``postmaster.pid`` may be another program's, and where nobody reaps orphans it may be a
zombie's. PostgreSQL itself takes both for a running server and refuses to start.
"""

import os
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from tenure.embedded.home import SOCKET_NAME
from tenure.embedded.process import run

_PID_LINE, _SOCKET_DIR_LINE = 0, 4
_CONNECT_TIMEOUT_SECONDS = 5.0
# <sys/un.h> of macOS, not in Python's socket module.
_SOL_LOCAL, _LOCAL_PEERPID = 0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """A server: its process and the folder of its socket."""

    pid: int
    socket_dir: Path


def claimed_postmaster(data: Path) -> Postmaster | None:
    """What ``postmaster.pid`` says, true or not."""
    lines = _lines(data / "postmaster.pid")
    if len(lines) <= _SOCKET_DIR_LINE or not lines[_PID_LINE].isdecimal() or not lines[_SOCKET_DIR_LINE]:
        return None
    return Postmaster(pid=int(lines[_PID_LINE]), socket_dir=Path(lines[_SOCKET_DIR_LINE]))


def find_postmaster(data: Path) -> Postmaster | None:
    """The running server of a data folder, or None. It may still be recovering, or be about to stop."""
    claimed = claimed_postmaster(data)
    if claimed is None:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_SECONDS)
        try:
            connection.connect(str(claimed.socket_dir / SOCKET_NAME))
        except BlockingIOError:  # somebody listens, whose queue is full
            return claimed
        except OSError:
            return None
        peer = _peer_pid(connection)
    # Another server on the same path would be that of a folder removed and made again. Zero is a process that we cannot
    # see: one in another container, on the same volume.
    return claimed if peer in (None, 0, claimed.pid) else None


def remove_stale_locks(data: Path, socket_dir: Path) -> None:
    """Removes the lock files that would keep PostgreSQL from starting although no server of this folder is behind them.

    A dead number is left to PostgreSQL, which also looks for leftover shared memory; this is for a number that lives
    and is a stranger's or a zombie's. Only for callers that hold the server's lock.
    """
    for path in (data / "postmaster.pid", socket_dir / f"{SOCKET_NAME}.lock"):
        lines = _lines(path)
        if not lines:
            path.unlink(missing_ok=True)  # empty: the machine stopped before it was written
            continue
        number = lines[_PID_LINE].removeprefix("-")
        if number.isdecimal() and _exists(int(number)) and not is_server_of(int(number), data):
            path.unlink(missing_ok=True)


def is_server_of(pid: int, data: Path) -> bool:
    """Whether the process is a PostgreSQL that serves this data folder."""
    if not Path("/proc/self").exists():
        return str(data) in run(["/bin/ps", "-p", str(pid), "-o", "command="]).stdout
    process = Path("/proc", str(pid))
    try:
        if not (process / "cmdline").read_bytes():
            return False  # a zombie
        return (process / "cwd").readlink() == data or os.fsencode(data) in (process / "cmdline").read_bytes()
    except OSError:
        return False  # gone by now, or another account's


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _peer_pid(connection: socket.socket) -> int | None:
    """The process that listens at the other end, where the system tells."""
    if hasattr(socket, "SO_PEERCRED"):
        answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", answer)[0])
    if sys.platform == "darwin":
        return connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return []
