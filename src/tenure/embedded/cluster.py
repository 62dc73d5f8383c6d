"""One cluster on disk and the server on it: made whole or not at all, started with recovery, stopped cleanly."""

import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal, NoReturn

from tenure.embedded.binaries import PostgresBinaries, find_binaries, reachable_binaries
from tenure.embedded.client import ROLE
from tenure.embedded.configuration import FILE_NAME, configuration
from tenure.embedded.home import socket_folder
from tenure.embedded.postmaster import Postmaster, claimed_postmaster, find_postmaster, is_server_of, remove_stale_locks
from tenure.embedded.private import open_private, private_folder, sync_folder, write_private
from tenure.embedded.process import Account, EmbeddedPostgresError, last_words, run

START_TIMEOUT_SECONDS = 600.0
"""The recovery of 4 GB of WAL takes minutes on a slow disk, and one that is cut short begins again the next time."""

# From this version on PostgreSQL brings its own C.UTF-8, which no upgrade of the system changes under an index.
_BUILTIN_LOCALES_SINCE = 17
# An hour less than the ring of log files is long: what is older is the same hour of another day.
_LOG_KEPT_SECONDS = 23 * 3600.0
_LOG_FILE_LIMIT_BYTES = 10 * 1024 * 1024
_LOG_TAIL_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster in ``home`` that belongs to ``account``. It need not exist yet.

    Methods that change something are for holders of the starting lock (see server.py). They raise EmbeddedPostgresError
    or OSError.
    """

    home: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    @property
    def postmaster(self) -> Postmaster | None:
        """The server that answers on this cluster, or None."""
        return find_postmaster(self.data)

    def programs(self, chosen: PostgresBinaries | None) -> PostgresBinaries:
        """The programs that fit this cluster and that its account can run: the chosen ones, or those found."""
        major = self._major() if self.exists else None
        if chosen is None:
            try:
                chosen = find_binaries(major=major)
            except EmbeddedPostgresError as error:
                if major is None:
                    raise
                made_by = f"the database in {self.home} was made by PostgreSQL {major}"
                raise EmbeddedPostgresError(f"{made_by}. {error}, or choose another data directory") from None
        if major not in (None, chosen.major):
            raise EmbeddedPostgresError(
                f"the database in {self.home} was made by PostgreSQL {major}, and {chosen.bin_dir} is PostgreSQL "
                f"{chosen.major}: name the programs of version {major}, or choose another data directory"
            )
        return reachable_binaries(chosen, self.account)

    def password(self) -> str:
        """The password of the role ``tenure``."""
        path = self.home / "password"
        try:
            with open_private(path, os.O_RDONLY) as file:
                return file.read().decode().strip()
        except FileNotFoundError:
            raise EmbeddedPostgresError(
                f"{path}, the password of the database, is missing: restore it, or choose another data directory"
            ) from None

    def create(self, programs: PostgresBinaries, lock: FileIO) -> None:
        """Makes the cluster in a side folder and renames it: a folder called ``data`` is a whole one.

        ``lock`` is inherited by initdb, so that one which outlives us is not taken for a dead one.
        """
        if self.data.exists():
            if os.listdir(self.data):
                raise EmbeddedPostgresError(
                    f"{self.data} is no complete cluster (it has no PG_VERSION): restore it from a backup, or move it "
                    "away to begin with an empty database"
                )
            self.data.rmdir()
        side = self.home / "data.new"
        if side.exists():
            shutil.rmtree(side)
        password = self.home / "password"
        write_private(password, secrets.token_urlsafe(32) + "\n", self.account, by_way_of=self.home)
        command: list[str | Path] = [
            programs.bin_dir / "initdb",
            "-D",
            side,
            "-U",
            ROLE,
            "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]
        command += ["--encoding=UTF8", "--data-checksums", "--no-instructions", "--lc-messages=C"]
        for locale in _locales(programs.major):
            done = run([*command, *locale], account=self.account, keep_open=[lock.fileno()])
            if done.returncode == 0:
                break
            shutil.rmtree(side, ignore_errors=True)
        else:
            raise EmbeddedPostgresError(f"initdb of PostgreSQL {programs.major} failed:\n{last_words(done)}")
        with open_private(side / "postgresql.conf", os.O_WRONLY | os.O_APPEND) as file:
            file.write(f"\ninclude_if_exists = '{FILE_NAME}'\n".encode())
        side.rename(self.data)
        sync_folder(self.home)

    def start_server(self, programs: PostgresBinaries, lock: FileIO, settings: Mapping[str, str]) -> None:
        """Starts the server and waits until it is ready, recovery included. Its processes inherit ``lock``."""
        sockets = socket_folder(self.home, self.account)
        logs = private_folder(self.home / "log", self.account)
        remove_stale_locks(self.data, sockets)
        self._trim_logs()
        text = configuration(socket_dir=sockets, log_dir=logs, settings=settings)
        write_private(self.data / FILE_NAME, text, self.account, by_way_of=self.home)
        startup_log = self.home / "startup.log"
        startup_log.unlink(missing_ok=True)
        done = run(
            [programs.bin_dir / "pg_ctl", "start", "-s", "-D", self.data, "-l", startup_log, *_WAIT],
            account=self.account,
            keep_open=[lock.fileno()],
            timeout=START_TIMEOUT_SECONDS + 30,
        )
        if done.returncode:
            self._fail(f"PostgreSQL {programs.major} did not start", last_words(done))

    def stop_server(self, programs: PostgresBinaries, mode: Literal["fast", "immediate"]) -> None:
        """Stops the server if one runs, whoever started it."""
        claimed = claimed_postmaster(self.data)
        # The second catches a server whose socket somebody has removed.
        if claimed is None or not (self.postmaster or is_server_of(claimed.pid, self.data)):
            return
        done = run(
            [programs.bin_dir / "pg_ctl", "stop", "-s", "-D", self.data, "-m", mode, *_WAIT],
            account=self.account,
            timeout=START_TIMEOUT_SECONDS + 30,
        )
        if done.returncode and self.postmaster is not None:
            self._fail("PostgreSQL did not stop", last_words(done))

    def _major(self) -> int:
        path = self.data / "PG_VERSION"
        text = path.read_text(errors="replace").strip()
        if not text.isdecimal():
            raise EmbeddedPostgresError(
                f"{path} says {text[:20]!r}, which is no version of PostgreSQL: the cluster is damaged. "
                "Restore it from a backup, or choose another data directory"
            )
        return int(text)

    def _trim_logs(self) -> None:
        """PostgreSQL empties a file of the ring when its hour comes again, but not when it starts in that hour."""
        for path in log_files(self.home):
            found = path.stat()
            if time.time() - found.st_mtime > _LOG_KEPT_SECONDS or found.st_size > _LOG_FILE_LIMIT_BYTES:
                path.unlink(missing_ok=True)

    def _fail(self, what: str, said: str) -> NoReturn:
        log = newest([*log_files(self.home), self.home / "startup.log"])
        tail = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:] if log else []
        raise EmbeddedPostgresError("\n".join([f"{what}: {said}", f"The end of {log}:", *tail]))


_WAIT = ("-w", "-t", f"{START_TIMEOUT_SECONDS:.0f}")


def log_files(home: Path) -> list[Path]:
    """The files of the server's log, one for an hour of the day, in no order."""
    return list((home / "log").glob("postgres-*.log"))


def newest(paths: list[Path]) -> Path | None:
    """The file written last, or None when none exists."""
    times = {path: path.stat().st_mtime for path in paths if path.exists()}
    return max(times, key=times.__getitem__) if times else None


def _locales(major: int) -> list[list[str]]:
    """Options for initdb, best first: the order of code points, and letters beyond ASCII where that can be had."""
    if major >= _BUILTIN_LOCALES_SINCE:
        return [["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]]
    return [["--locale=C.UTF-8"], ["--locale=C"]]
