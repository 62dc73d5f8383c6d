"""The PostgreSQL that starts by itself: one data folder, one server, any number of processes that use it.

Three locks, all `flock`, so that a killed process has let go of its own:

- ``starting.lock`` is held alone for the length of a start, stop or restart;
- ``users.lock`` is shared by every user; who can take it alone is the last one, and stops the server;
- ``server.lock`` is inherited by the server's own processes; who can take it knows that none of them is left.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tenure.embedded import locks
from tenure.embedded.binaries import PostgresBinaries
from tenure.embedded.client import Client
from tenure.embedded.cluster import START_TIMEOUT_SECONDS, Cluster, log_files, newest
from tenure.embedded.configuration import checked_settings
from tenure.embedded.home import known_home, open_home
from tenure.embedded.postmaster import find_postmaster
from tenure.embedded.process import EmbeddedPostgresError

DATABASE = "tenure"

# Others wait for a start of ours, and a little more.
_LOCK_TIMEOUT_SECONDS = START_TIMEOUT_SECONDS + 60
# Orphaned processes of a killed server end when they next look up; one in the middle of a long query does not.
_ORPHANS_TIMEOUT_SECONDS = 120.0
_KILL_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.02


class EmbeddedPostgres:
    """A PostgreSQL server on the cluster in ``root``, shared by all who start it.

    ``settings`` are PostgreSQL's own and hold from the next time that the server really starts. ``binaries`` default to
    what `find_binaries` finds for the cluster's major version. Methods block (a start takes about a second; asyncio
    callers use a thread), may be called from any thread, and raise EmbeddedPostgresError with a message to act on.

    As a context manager it starts and stops.
    """

    def __init__(
        self, root: Path, *, settings: Mapping[str, str] | None = None, binaries: PostgresBinaries | None = None
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self._settings = checked_settings(settings or {})
        self._chosen_binaries = binaries
        self._home = known_home(self.root)
        self._cluster: Cluster | None = None
        self._programs: PostgresBinaries | None = None
        self._client: Client | None = None
        self._users: FileIO | None = None
        self._one_at_a_time = threading.RLock()

    def start(self) -> str:
        """Starts the server, or joins the one that runs, and returns the URL of the database ``tenure``.

        Makes the cluster and the database when they are missing. Again is allowed, and starts a server that has died.
        """
        if sys.platform == "win32":
            raise EmbeddedPostgresError(
                "the embedded PostgreSQL does not run on Windows: set TENURE_DATABASE_URL to a server of your own"
            )
        with self._one_at_a_time, self._explained("start"):
            self._home, account = open_home(self.root)
            self._cluster = cluster = Cluster(home=self._home, account=account)
            with self._starting_lock(cluster):
                was_joined = self._users is not None
                self._join(cluster)
                try:
                    client = self._bring_up(cluster, cluster.programs(self._chosen_binaries))
                    client.create_database(DATABASE, template=None)
                except BaseException:
                    if not was_joined:
                        self._leave()
                    raise
            return client.url(DATABASE)

    def stop(self) -> None:
        """Leaves the server, and stops it when nobody else uses it. Nothing happens when it was not started here."""
        with self._one_at_a_time, self._explained("stop"):
            if self._users is None:
                return
            try:
                cluster, programs = self._started()
                with self._starting_lock(cluster):
                    if locks.try_exclusive(self._users):
                        cluster.stop_server(programs, "fast")
            finally:
                self._leave()

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stops and starts the server under whoever uses it; ``immediate`` makes it recover as after a crash."""
        with self._one_at_a_time, self._explained("restart"):
            cluster, programs = self._started()
            with self._starting_lock(cluster):
                cluster.stop_server(programs, mode)
                self._bring_up(cluster, programs)

    def kill(self) -> None:
        """Kills the server (SIGKILL), for tests of what happens then. Returns when it no longer answers."""
        pid = self.postmaster_pid
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_TIMEOUT_SECONDS
        while self.postmaster_pid == pid and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def url(self, database: str = DATABASE) -> str:
        """The URL of a database of this server, with the password in it: for asyncpg, psql and SQLAlchemy alike."""
        return self._started_client().url(database)

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Makes a database unless it exists, as a copy of ``template`` (to which nobody may be connected); its URL."""
        with self._explained("create a database in"):
            client = self._started_client()
            client.create_database(name, template=template)
            return client.url(name)

    @property
    def postmaster_pid(self) -> int | None:
        """The process of the server that answers, or None."""
        running = find_postmaster(self._home / "data")
        return running.pid if running else None

    @property
    def home(self) -> Path:
        """The folder with the cluster in it: ``root``, or where its link leads (see `open_home`)."""
        return self._home

    @property
    def log_path(self) -> Path:
        """The server's log file of this hour (ask again later); before there is one, what it said at its start."""
        return newest(log_files(self._home)) or self._home / "startup.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self, cluster: Cluster, programs: PostgresBinaries) -> Client:
        """Sees to it that the server takes connections.

        It may run already, be half up after its starter was killed, or go away while we look.
        """
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if cluster.postmaster is None:
                with self._server_lock(cluster) as lock:
                    if lock is not None:
                        if not cluster.exists:
                            cluster.create(programs, lock)
                        cluster.start_server(programs, lock, self._settings)
            running = cluster.postmaster
            if running is not None:
                client = Client(bin_dir=programs.bin_dir, socket_dir=running.socket_dir, password=cluster.password())
                if client.answers():
                    self._programs, self._client = programs, client
                    return client
            time.sleep(_POLL_SECONDS)
        raise EmbeddedPostgresError(
            f"the server does not take connections after {START_TIMEOUT_SECONDS:.0f} seconds: see {self.log_path}"
        )

    @contextlib.contextmanager
    def _starting_lock(self, cluster: Cluster) -> Iterator[None]:
        path = cluster.home / "starting.lock"
        with locks.exclusive(path, cluster.account, timeout=_LOCK_TIMEOUT_SECONDS):
            yield

    @contextlib.contextmanager
    def _server_lock(self, cluster: Cluster) -> Iterator[FileIO | None]:
        """The lock for the new server to inherit; None when an earlier server answers after all.

        Closed, never unlocked: the server's processes hold the same lock through their copies of the open file.
        """
        path = cluster.home / "server.lock"
        with locks.open_lock(path, cluster.account) as lock:
            deadline = time.monotonic() + _ORPHANS_TIMEOUT_SECONDS
            while not locks.try_exclusive(lock):
                if cluster.postmaster is not None:
                    yield None
                    return
                if time.monotonic() > deadline:
                    raise EmbeddedPostgresError(
                        f"processes of an earlier server on {cluster.home} still run but take no connections: "
                        f"see which (fuser -v {path}), end them, and start again"
                    )
                time.sleep(_POLL_SECONDS)
            yield lock

    def _join(self, cluster: Cluster) -> None:
        if self._users is None:
            self._users = locks.open_lock(cluster.home / "users.lock", cluster.account)
            locks.share(self._users)

    def _leave(self) -> None:
        if self._users is not None:
            locks.release(self._users)
            self._users = None
        self._client = None

    def _started_client(self) -> Client:
        if self._client is None:
            raise EmbeddedPostgresError(f"the embedded PostgreSQL in {self.root} is not started: call start() first")
        return self._client

    def _started(self) -> tuple[Cluster, PostgresBinaries]:
        self._started_client()
        assert self._cluster is not None
        assert self._programs is not None
        return self._cluster, self._programs

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """What the operating system refuses is told with the path, and without a traceback."""
        try:
            yield
        except OSError as error:
            raise EmbeddedPostgresError(f"cannot {what} the embedded PostgreSQL in {self.root}: {error}") from error
