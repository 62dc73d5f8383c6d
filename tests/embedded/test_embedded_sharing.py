"""Several processes and one server: who starts it, who may stop it, and what the death of one means to the others."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tenure.embedded import EmbeddedPostgres, EmbeddedPostgresError
from tenure.embedded import server as embedded_server
from tests.embedded.servers import SMALL, Child, query

pytestmark = pytest.mark.story


def test_killed_parent_leaves_a_server_that_the_next_start_adopts_and_stops(
    root: Path, spawn: Callable[[Path], Child]
) -> None:
    child = spawn(root).started()
    query(child.url, "CREATE TABLE adopted AS SELECT 42 AS n")
    child.kill()
    assert psutil.pid_exists(child.postmaster_pid)
    server = EmbeddedPostgres(root, settings=SMALL)
    assert server.start() == child.url
    assert server.postmaster_pid == child.postmaster_pid
    assert query(server.url(), "SELECT n FROM adopted") == 42
    server.stop()
    assert server.postmaster_pid is None


def test_committed_rows_survive_the_death_of_parent_and_server(root: Path, spawn: Callable[[Path], Child]) -> None:
    child = spawn(root).started()
    query(child.url, "CREATE TABLE committed AS SELECT generate_series(1, 50000)")
    child.kill()
    os.kill(child.postmaster_pid, signal.SIGKILL)
    with EmbeddedPostgres(root, settings=SMALL) as server:
        assert server.postmaster_pid != child.postmaster_pid
        assert query(server.url(), "SELECT count(*) FROM committed") == 50000


def test_first_to_leave_does_not_stop_what_another_process_uses(root: Path, spawn: Callable[[Path], Child]) -> None:
    first, second = spawn(root).started(), spawn(root).started()
    assert first.postmaster_pid == second.postmaster_pid
    first.leave()
    assert query(second.url, "SELECT 1") == 1
    second.leave()
    assert EmbeddedPostgres(root).postmaster_pid is None


def test_objects_in_one_process_are_users_of_their_own(root: Path) -> None:
    first, second = EmbeddedPostgres(root, settings=SMALL), EmbeddedPostgres(root, settings=SMALL)
    assert first.start() == second.start()
    second.stop()
    assert query(first.url(), "SELECT 1") == 1
    first.stop()
    assert first.postmaster_pid is None


def test_object_that_never_started_it_does_not_stop_it(server: EmbeddedPostgres) -> None:
    EmbeddedPostgres(server.root).stop()
    assert query(server.url(), "SELECT 1") == 1


def test_five_processes_that_start_at_once_get_one_server(folder: Path, spawn: Callable[[Path], Child]) -> None:
    root = folder / "root"
    children = [spawn(root) for _ in range(5)]
    assert len({child.started().postmaster_pid for child in children}) == 1
    assert query(children[0].url, "SELECT 1") == 1
    for child in children:
        child.leave()
    assert EmbeddedPostgres(root).postmaster_pid is None


def test_interrupt_from_the_terminal_does_not_reach_the_server(root: Path, spawn: Callable[[Path], Child]) -> None:
    child = spawn(root).started()
    os.killpg(child.process.pid, signal.SIGINT)
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == "interrupted\n"
    assert query(child.url, "SELECT 1") == 1
    child.leave()


def test_no_server_starts_beside_a_process_of_a_killed_one(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that has not noticed the death of its postmaster may still write.
    orphan = psutil.Process(server.postmaster_pid).children()[0]
    orphan.suspend()
    server.kill()
    with monkeypatch.context() as patience:
        patience.setattr(embedded_server, "_ORPHANS_TIMEOUT_SECONDS", 0.5)
        with pytest.raises(EmbeddedPostgresError, match=r"earlier server .* still run.*fuser -v .*server\.lock"):
            server.start()
    assert server.postmaster_pid is None
    orphan.resume()
    server.start()
    assert query(server.url(), "SELECT 1") == 1
