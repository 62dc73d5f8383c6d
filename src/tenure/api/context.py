"""What every route is given: the services, and the API's own parts that live as long as the application."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.acceptance import Terms
from tenure.api.claiming import ClaimDesk
from tenure.api.intake import Intake
from tenure.api.services import Services
from tenure.api.watcher import JobWatcher
from tenure.errors import Draining


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """One application's parts."""

    services: Services
    terms: Terms
    watcher: JobWatcher
    intake: Intake
    claims: ClaimDesk

    @classmethod
    def of(cls, services: Services) -> "ApiContext":
        """The parts for these services."""
        return cls(
            services=services,
            terms=Terms(registry=services.registry, limits=services.settings.limits, defaults=services.settings.jobs),
            watcher=JobWatcher(services.database),
            intake=Intake(services.database),
            claims=ClaimDesk(services),
        )

    async def close(self) -> None:
        """Ends what runs in the background, in this order: accept what was sent, then let waiters go."""
        await self.intake.close()
        await self.watcher.close()

    def refuse_while_draining(self, what: str) -> None:
        """Raises Draining once the service stops taking work."""
        if self.services.lifecycle.draining.is_set():
            raise Draining(f"the service is stopping and takes no more {what}; ask another one, or come back")


Endpoint = Callable[[ApiContext, Request], Coroutine[Any, Any, Response]]
