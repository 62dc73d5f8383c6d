"""A service for the tests of a module, with a kind whose texts are awkward; and a client of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.client import Client
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.client.faces import FACES, face
from tests.running import Running, running

REPORTS = Path(__file__).parents[1] / "reports.toml"
AWKWARD = "one\u2028two\x85three"
"""What Unicode takes for the ends of lines, and JSON and server-sent events do not."""


@pytest.fixture(scope="module")
def service(migrated_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("data")
    with running(migrated_url, folder, registry=_registry(), REPORTS=str(REPORTS)) as started:
        yield started


@pytest.fixture(params=FACES)
def client(service: Running, request: pytest.FixtureRequest) -> Iterator[Client]:
    with face(request.param, service.url) as made:
        yield made


def _registry() -> JobRegistry:
    registry = JobRegistry()

    @registry.handler("test.awkward")
    async def awkward(context: JobContext) -> str:
        raise RuntimeError(AWKWARD)

    return registry
