"""The service that the worker is tested against: a real one, in this process, that can be drained, stopped and started."""

from collections.abc import Mapping

from tenure.server import Service
from tenure.settings import load

_QUICK = {
    "TENURE_HOST": "127.0.0.1",
    "TENURE_REAP_SECONDS": "0.2",
    "TENURE_BACKOFF_BASE_SECONDS": "0.05",
    "TENURE_BACKOFF_CAP_SECONDS": "0.1",
    "TENURE_DATABASE_POOL_SIZE": "5",
}
"""Times at which a worker does not have to be watched for long."""


class TestService:
    """A service without workers on the database, at one port for its whole life."""

    __test__ = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, **_QUICK}
        self._port = 0
        self._service: Service | None = None
        self.url = ""

    async def start(self) -> None:
        """Raises ConfigurationError or DatabaseUnavailable's kin as the service does."""
        self._service = Service(load(self._environment, PORT=self._port), workers=False)
        await self._service.start()
        self.url = self._service.url
        self._port = int(self.url.rpartition(":")[2])

    def drain(self) -> None:
        """From now on claims are refused with 503, and those that wait end; heartbeats and outcomes are taken."""
        assert self._service is not None
        self._service.lifecycle.draining.set()

    async def stop(self) -> None:
        """Ends it in order."""
        if self._service is not None:
            await self._service.stop()
            self._service = None
