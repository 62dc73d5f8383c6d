"""One cluster for the whole run, stopped between tests; those that spoil theirs have a folder to make their own in."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.embedded import EmbeddedPostgres
from tests.embedded.servers import CHILD, SMALL, Child, end_server


def open_folder() -> Path:
    """A new folder that every account can enter; pytest's own are closed to the one the server runs as."""
    made = Path(tempfile.mkdtemp(prefix="tenure-embedded-", dir="/tmp")).resolve()
    made.chmod(0o755)
    return made


def remove(folder: Path) -> None:
    """Ends the servers on the folder, and removes it with what its clusters keep elsewhere."""
    homes = [link.readlink() for link in folder.rglob("elsewhere") if link.is_symlink()]
    for place in (folder, *homes):
        for pidfile in place.rglob("postmaster.pid"):
            end_server(pidfile.parent)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can enter, for this test; nothing runs on it afterwards."""
    made = open_folder()
    yield made
    remove(made)


@pytest.fixture(scope="session")
def cluster_root() -> Iterator[Path]:
    """The root of the run's cluster."""
    made = open_folder()
    with EmbeddedPostgres(made / "root", settings=SMALL):
        pass
    yield made / "root"
    remove(made)


@pytest.fixture
def root(cluster_root: Path) -> Iterator[Path]:
    """The run's cluster with no server on it, neither before nor after the test."""
    yield cluster_root
    end_server(cluster_root / "data")


@pytest.fixture
def server(root: Path) -> Iterator[EmbeddedPostgres]:
    """A started server on the run's cluster."""
    with EmbeddedPostgres(root, settings=SMALL) as started:
        yield started


@pytest.fixture
def spawn() -> Iterator[Callable[[Path], Child]]:
    """Starts a `Child` on a root, in a process group of its own, without waiting for it."""
    children: list[Child] = []

    def start(root: Path) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(Child(process))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
