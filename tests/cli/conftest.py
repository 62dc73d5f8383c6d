"""A service for the tests of a module, and the command line that asks it."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.cli.commands import Tenure
from tests.cli.documents import Client
from tests.running import Running, running

EVIL = "\x1b[2J\x9b31m[red]\\[/red] and [/] more"
REPORTS = Path(__file__).parents[1] / "reports.toml"


@pytest.fixture(scope="module")
def service(migrated_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    registry = JobRegistry()

    @registry.handler("test.evil")
    async def evil(context: JobContext) -> str:
        """Tries to steer the terminal of whoever looks at it."""
        await context.progress(0.5, EVIL)
        return EVIL

    with running(migrated_url, tmp_path_factory.mktemp("data"), registry=registry, REPORTS=str(REPORTS)) as started:
        yield started


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    made = Client(service.url)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of whoever runs the tests, and a folder where nothing is."""
    for name in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def clean_logging() -> Iterator[None]:
    """A command that serves sends the log to the stderr of its test: the next test's service must not write to it."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:
        root.removeHandler(handler)


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> Tenure:
    """The command line without a service."""
    return Tenure(capsys)


@pytest.fixture
def asking(tenure: Tenure, service: Running, monkeypatch: pytest.MonkeyPatch) -> Tenure:
    """The command line with TENURE_URL set to the service."""
    monkeypatch.setenv("TENURE_URL", service.url)
    return tenure
