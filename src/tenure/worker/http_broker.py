"""A broker over HTTP: the same runtime on a machine that reaches only the service's address.

What differs from a database. Claims are long polls. Cancel requests and an operator's orders come with heartbeats alone,
so every lease asks at least every `HEAR_WITHIN_SECONDS`. `context.completion()` has no database to commit in. The retry
policy and the limits of a kind are those that the *service* knows it by.

During an outage claims, heartbeats and outcomes stand at one `Gate`: together they make about one attempt a second. No
request is waited for longer than `_ANSWER_SECONDS` beyond the wait it asked for, so that a connection whose other end is
gone without a word is noticed.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Self

from tenure.client import AsyncClient, ServiceUnreachable
from tenure.errors import CompletionUnavailable
from tenure.jobs.model import Claimed
from tenure.store.artifacts import Artifact
from tenure.store.claim import KindSelector
from tenure.store.settle import Outcome
from tenure.store.workers import Directive
from tenure.wire.leases import LeaseGrant
from tenure.worker.broker import Beat, BeatAnswer, CancelHint, HeartbeatChannel, SettleAnswer
from tenure.worker.completion import Completion
from tenure.worker.gate import Gate
from tenure.worker.translation import beaten, by_size, claimed, directive_of, sent_beat, sent_outcome, settled

WAIT_SECONDS = 5.0
"""Of one claim. A fifth of a request a second is little for the service; more would make a dead connection costly."""

HEAR_WITHIN_SECONDS = 5.0
"""A cancel request is heard within this time, or a third of the lease if that is less."""

_ANSWER_SECONDS = 4.0
_SETTLE_SECONDS = 15.0
"""Outcomes may carry megabytes over a slow line."""


class HttpBroker:
    """A broker of the service at ``url``; one a worker. ``headers`` go along with every request.

    ``lease_seconds`` overrides what jobs and kinds say; ``wait_seconds`` (≤ 20) is how long a claim waits for work.
    """

    def __init__(
        self,
        url: str,
        *,
        worker_id: str,
        capacity: int | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = WAIT_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._worker_id = worker_id
        self._capacity = capacity
        self._lease_seconds = lease_seconds
        self._wait_seconds = min(wait_seconds, 20.0)
        self._headers = dict(headers or {})
        self._host = socket.gethostname()
        self._on_directive: Callable[[Directive | None], None] = _ignore
        self._gate = Gate(url)
        self._client = self._open(self._wait_seconds + _ANSWER_SECONDS)
        self._ended = asyncio.Event()
        self._look_at_once = False
        self._heard = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of its connections; the worker must have ended."""
        await self._client.close()

    async def claim(self, *, limit: int, queues: Sequence[str], kinds: Sequence[KindSelector]) -> list[Claimed]:
        asked_at = time.monotonic()
        self._look_at_once = False
        if self._ended.is_set():
            return []
        answer = await self._unless_ended(limit, queues, kinds)
        if answer is None:
            return []
        leases, directive = answer
        self._on_directive(directive)
        # An answer that came early and brought nothing is no reason to ask again at once.
        self._look_at_once = bool(leases) or time.monotonic() - asked_at >= self._wait_seconds / 2
        return [claimed(lease) for lease in leases]

    async def _unless_ended(
        self, limit: int, queues: Sequence[str], kinds: Sequence[KindSelector]
    ) -> tuple[Sequence[LeaseGrant], Directive | None] | None:
        """The claim's answer, or None when `stop_waiting` came first.

        The request is then cut off, for the service cannot be told otherwise; it takes back what it was about to hand
        out when the caller is gone. What had left it by then is held by nobody until its lease ends.
        """
        claiming = asyncio.ensure_future(self._ask(limit, queues, kinds))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({claiming, ended}, return_when=asyncio.FIRST_COMPLETED)
            return await claiming if claiming.done() else None
        finally:
            for task in (claiming, ended):
                task.cancel()
            await asyncio.gather(claiming, ended, return_exceptions=True)

    async def _ask(
        self, limit: int, queues: Sequence[str], kinds: Sequence[KindSelector]
    ) -> tuple[Sequence[LeaseGrant], Directive | None]:
        wanted = [
            {"kind": kind.kind, **({"schema_versions": list(kind.schema_versions)} if kind.schema_versions else {})}
            for kind in kinds
        ]
        async with self._gate.passing(self._wait_seconds + _ANSWER_SECONDS):
            answer = await self._client.claim(
                self._worker_id,
                queues,
                kinds=wanted,
                max_jobs=min(limit, 1_000),
                lease_seconds=self._lease_seconds,
                wait_seconds=self._wait_seconds,
                capacity=self._capacity,
                version=version("tenure"),
                host=self._host[:200],
                restarted=not self._heard,
            )
        self._heard = True
        return answer.leases, directive_of(answer.directive)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[SettleAnswer]:
        answers: list[SettleAnswer] = []
        for part in by_size(outcomes):
            async with self._gate.passing(_SETTLE_SECONDS):
                items = await self._client.settle([sent_outcome(outcome) for outcome in part])
            if len(items) != len(part):
                raise ServiceUnreachable(f"{self._url} answered {len(items)} of {len(part)} outcomes")
            answers += [settled(item) for item in items]
        return answers

    @contextlib.asynccontextmanager
    async def heartbeat_channel(self) -> AsyncIterator[HeartbeatChannel]:
        async with self._open(_ANSWER_SECONDS) as client:
            yield _HttpHeartbeats(client, self._gate)

    def completion(
        self, outcome: Outcome, artifacts: Sequence[Artifact], *, sealed: Callable[[], AbstractContextManager[None]]
    ) -> Completion:
        raise CompletionUnavailable(
            "context.completion() commits in Tenure's own database, which a worker over HTTP does not reach: "
            "return the result instead, or run the worker with TENURE_DATABASE_URL"
        )

    @contextlib.contextmanager
    def listening(
        self, queues: Sequence[str], on_cancel: CancelHint, on_directive: Callable[[Directive | None], None]
    ) -> Iterator[None]:
        self._on_directive = on_directive
        yield

    async def wait_for_work(self, timeout_seconds: float) -> None:
        if self._look_at_once:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._ended.wait()

    def stop_waiting(self) -> None:
        self._ended.set()

    def work_returned(self, queue: str) -> None:
        """The service wakes those who wait: it knows what it was given back."""

    @property
    def ask_every_seconds(self) -> float | None:
        return HEAR_WITHIN_SECONDS

    def _open(self, timeout_seconds: float) -> AsyncClient:
        # The runtime repeats by itself what may be repeated, and knows better for how long.
        return AsyncClient(self._url, timeout_seconds=timeout_seconds * 2, retry_for_seconds=0.0, headers=self._headers)


class _HttpHeartbeats:
    """Heartbeats on connections of their own, in the heartbeats' event loop."""

    def __init__(self, client: AsyncClient, gate: Gate) -> None:
        self._client = client
        self._gate = gate

    async def heartbeat(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        async with self._gate.passing(_ANSWER_SECONDS):
            items = await self._client.heartbeat([sent_beat(beat) for beat in beats])
        if len(items) != len(beats):
            raise ServiceUnreachable(f"{self._client.url} answered {len(items)} of {len(beats)} heartbeats")
        return [beaten(item) for item in items]


def _ignore(_: Directive | None) -> None:
    pass
