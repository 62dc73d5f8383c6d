"""The one seam between the runtime and wherever jobs come from: claim, heartbeat, settle.

No type of a database appears in the protocol, so that the same runtime can work over HTTP.
"""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib.metadata import version
from typing import Protocol
from uuid import UUID

from tenure.errors import BodyTooLarge, LeaseLost, NotFound, Unavailable
from tenure.jobs.model import DEFAULT_TENANT, Claimed
from tenure.store.artifacts import Artifact
from tenure.store.claim import KindSelector, claim
from tenure.store.database import Connection, Database, translated_errors
from tenure.store.frontier import Frontier
from tenure.store.heartbeat import Heartbeat, HeartbeatAnswer, heartbeat
from tenure.store.notify import CANCEL, WORK, WORKER, Bell, Listener
from tenure.store.settle import Answer, Outcome, OutcomeKind, PolicyOf, settle
from tenure.store.workers import Directive, WorkerSeen, seen
from tenure.worker.completion import Completion, DatabaseCompletion

Beat = Heartbeat
BeatAnswer = HeartbeatAnswer | LeaseLost | NotFound | Unavailable
"""Unavailable: this one lease could not be renewed now (somebody locks its row); the others were."""

SettleAnswer = Answer | BodyTooLarge
"""BodyTooLarge: the result is over a limit that the other side has; nothing changed, and the lease stays."""

CancelHint = Callable[[UUID | None], None]
"""Called with the id of a job that may have been asked to stop; with None when any may have been."""

_SEEN_AGAIN_SECONDS = 10.0
"""How often the record of workers is brought up to date; a hint makes it sooner."""

_UNHEARD_SECONDS = 1.0
"""While cancel hints may not arrive, every lease asks this often."""

_HEARTBEAT_LOCK_TIMEOUT = "500"
"""Milliseconds. One row that somebody locks must not keep the other leases of the same statement waiting."""


class HeartbeatChannel(Protocol):
    """A way to renew leases that nothing else shares."""

    async def heartbeat(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        """Renews; one answer a beat, in order. Raises Unavailable when nothing could be asked: open a new channel."""


class Broker(Protocol):
    """Where jobs come from and where outcomes go. Every method may raise Unavailable."""

    async def claim(self, *, limit: int, queues: Sequence[str], kinds: Sequence[KindSelector]) -> list[Claimed]:
        """Up to ``limit`` due jobs of these queues and kinds, under fresh leases. May wait while there is none."""

    async def settle(self, outcomes: Sequence[Outcome]) -> list[SettleAnswer]:
        """Reports outcomes, all in one go; one answer an outcome, in order. Repeating them is harmless."""

    def heartbeat_channel(self) -> AbstractAsyncContextManager[HeartbeatChannel]:
        """Opens a channel; used from the heartbeats' own thread and event loop."""

    def completion(
        self, outcome: Outcome, artifacts: Sequence[Artifact], *, sealed: Callable[[], AbstractContextManager[None]]
    ) -> Completion:
        """A transaction that ends in this outcome; ``sealed`` is held over its commit. Raises CompletionUnavailable."""

    def listening(
        self, queues: Sequence[str], on_cancel: CancelHint, on_directive: Callable[[Directive | None], None]
    ) -> AbstractContextManager[None]:
        """While the block runs, hints end `wait_for_work` and reach ``on_cancel``, and what an operator told this worker
        reaches ``on_directive``, on the worker's event loop."""

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """Returns when there may be work that the last claim did not see, at the latest after the timeout."""

    def stop_waiting(self) -> None:
        """No more work is wanted: whatever waits for some ends now, and so does every later wait."""

    def work_returned(self, queue: str) -> None:
        """Tells every worker that a job of this queue is due again."""

    @property
    def ask_every_seconds(self) -> float | None:
        """How often every lease has to ask whether it was canceled; None while hints tell it."""


class DatabaseBroker:
    """A broker over Tenure's own database.

    One a worker. Claims and outcomes use the pool, heartbeats a connection of their own. ``default_lease_seconds`` holds
    for jobs and kinds that name no lease; ``policy_of`` gives a kind's retry policy.
    """

    def __init__(
        self,
        database: Database,
        *,
        worker_id: str,
        tenant: str = DEFAULT_TENANT,
        default_lease_seconds: float,
        policy_of: PolicyOf,
        bell: Bell,
        listener: Listener,
        capacity: int | None = None,
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._tenant = tenant
        self._default_lease_seconds = default_lease_seconds
        self._policy_of = policy_of
        self._bell = bell
        self._listener = listener
        self._capacity = capacity
        self._host = socket.gethostname()
        self._seen_at = 0.0
        self._on_directive: Callable[[Directive | None], None] = _ignore
        self._claiming = asyncio.Lock()
        self._frontiers = [Frontier() for _ in range(database.parts)]
        self._work = asyncio.Event()

    async def claim(self, *, limit: int, queues: Sequence[str], kinds: Sequence[KindSelector]) -> list[Claimed]:
        claimed: list[Claimed] = []
        async with self._claiming:
            # Before the statement: a hint that comes while it runs may be about a job that it does not see.
            self._work.clear()
            async with self._database.connection() as connection:
                await self._note_presence(connection, queues, kinds)
                for part, frontier in enumerate(self._frontiers):
                    claimed += await claim(
                        connection,
                        worker_id=self._worker_id,
                        queues=queues,
                        limit=limit - len(claimed),
                        default_lease_seconds=self._default_lease_seconds,
                        kinds=kinds,
                        tenant=self._tenant,
                        part=part,
                        frontier=frontier,
                    )
        return claimed

    async def _note_presence(
        self, connection: Connection, queues: Sequence[str], kinds: Sequence[KindSelector]
    ) -> None:
        now = time.monotonic()
        if self._seen_at and now - self._seen_at < _SEEN_AGAIN_SECONDS:
            return
        directive = await seen(
            connection,
            WorkerSeen(
                id=self._worker_id,
                queues=queues,
                kinds=[kind.kind for kind in kinds],
                capacity=self._capacity,
                version=version("tenure"),
                host=self._host,
                restarted=not self._seen_at,
                tenant=self._tenant,
            ),
        )
        self._seen_at = now
        self._on_directive(directive)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[SettleAnswer]:
        alone = all(outcome.kind is OutcomeKind.COMPLETE for outcome in outcomes)
        async with self._database.connection() if alone else self._database.transaction() as connection:
            return [
                *await settle(
                    connection, outcomes, policy_of=self._policy_of, random=random.random, tenant=self._tenant
                )
            ]

    @contextlib.asynccontextmanager
    async def heartbeat_channel(self) -> AsyncIterator[HeartbeatChannel]:
        async with self._database.dedicated("tenure heartbeats") as connection:
            if self._database.settings.session_settings:
                await connection.execute("SELECT set_config('lock_timeout', $1, false)", _HEARTBEAT_LOCK_TIMEOUT)
            yield _DatabaseHeartbeats(connection, self._tenant)

    def completion(
        self, outcome: Outcome, artifacts: Sequence[Artifact], *, sealed: Callable[[], AbstractContextManager[None]]
    ) -> Completion:
        return DatabaseCompletion(self._database, outcome, artifacts, tenant=self._tenant, sealed=sealed)

    @contextlib.contextmanager
    def listening(
        self, queues: Sequence[str], on_cancel: CancelHint, on_directive: Callable[[Directive | None], None]
    ) -> Iterator[None]:
        self._on_directive = on_directive
        wanted = {*queues, "*"}

        def on_hint(topic: str, subject: str) -> None:
            if topic == WORK and subject in wanted:
                self._work.set()
            if topic == WORKER and subject == self._worker_id:
                self._seen_at = min(self._seen_at, 1e-9)  # ask again, at once
                self._work.set()
            if topic == CANCEL:
                on_cancel(_job_id(subject))
            elif topic == WORK and subject == "*":  # the listener is back: any hint may have been missed
                on_cancel(None)

        with self._listener.subscribed(on_hint):
            yield

    async def wait_for_work(self, timeout_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._work.wait()

    def stop_waiting(self) -> None:
        """Nothing to do: claims do not wait, and the runtime itself ends `wait_for_work`."""

    def work_returned(self, queue: str) -> None:
        self._bell.ring(WORK, queue)

    @property
    def ask_every_seconds(self) -> float | None:
        return None if self._listener.healthy else _UNHEARD_SECONDS


class _DatabaseHeartbeats:
    """Heartbeats on a connection of their own, each statement committing by itself."""

    def __init__(self, connection: Connection, tenant: str | None) -> None:
        self._connection = connection
        self._tenant = tenant

    async def heartbeat(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        async with translated_errors():
            return [*await heartbeat(self._connection, beats, tenant=self._tenant)]


def _ignore(_: Directive | None) -> None:
    pass


def _job_id(subject: str) -> UUID | None:
    try:
        return UUID(subject)
    except ValueError:
        return None
