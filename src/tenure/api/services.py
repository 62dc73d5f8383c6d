"""What the composition root hands to the API."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tenure.artifacts.store import ArtifactStore
from tenure.settings import Settings
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.worker.registry import JobRegistry


async def _always_ready() -> list[str]:
    return []


@dataclass(slots=True)
class ServiceLifecycle:
    """Where the service is between start and stop; the server sets it, the API reads it."""

    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the service stops taking work: waits end, claims and enqueues are refused, settles are served."""

    why_not_ready: Callable[[], Awaitable[list[str]]] = _always_ready
    """Tells what keeps the service from being ready, one sentence each; the server puts its own checks here."""

    async def readiness(self) -> list[str]:
        """Why not to send requests here; empty when ready."""
        return ["the service is stopping"] if self.draining.is_set() else await self.why_not_ready()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All that the routes use."""

    database: Database
    bell: Bell
    listener: Listener
    registry: JobRegistry
    settings: Settings
    artifacts: ArtifactStore | None
    lifecycle: ServiceLifecycle
