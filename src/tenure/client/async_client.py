"""The client for programs that await: each method is one operation of the API, named as there."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack
from uuid import UUID

from tenure.client import following, operations
from tenure.client.fields import (
    Beat,
    CancelFields,
    ClaimFields,
    DeadFilters,
    JobFields,
    JobFilters,
    LeaseOutcome,
    NewJob,
    RetryFields,
)
from tenure.client.rules import RETRY_FOR_SECONDS, TIMEOUT_SECONDS, Rules
from tenure.client.transport import AsyncTransport
from tenure.wire.cancel import CancelReceipt
from tenure.wire.jobs import BatchItem, Event, Job, JobPage, Progress
from tenure.wire.leases import ClaimAnswer, HeartbeatManyItem, SettleManyItem
from tenure.wire.service import ArtifactInfo
from tenure.wire.workers import Worker


class AsyncClient:
    """Speaks to one service, on one event loop. Use it as a context manager, or close it. Times are seconds.

    ``timeout_seconds`` of silence end a request. ``retry_for_seconds`` bounds the repeating of one call, where that is
    safe (0: never repeat). ``patience_seconds`` is how long `follow` and `download` bear with a service that has gone
    away in the middle. ``headers`` go along with every request.

    Every method raises the service's own errors (`tenure.errors`), and ServiceUnreachable when no answer could be had.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_for_seconds: float = RETRY_FOR_SECONDS,
        patience_seconds: float = RETRY_FOR_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._rules = Rules(
            url=url,
            timeout_seconds=timeout_seconds,
            retry_for_seconds=retry_for_seconds,
            patience_seconds=patience_seconds,
        )
        self._transport = AsyncTransport(self._rules, headers or {})

    @property
    def url(self) -> str:
        """The service that is asked."""
        return self._rules.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._transport.close()

    async def enqueue(
        self, kind: str, payload: Any = None, *, wait_seconds: float = 0.0, **fields: Unpack[JobFields]
    ) -> Job:
        """Accepts a job; with ``wait_seconds`` it answers once the job has finished, if it does by then.

        Carries an idempotency key, its own if none is given: so asking again is safe when the answer is lost.
        """
        return await self._transport.result(
            operations.enqueue(self._rules, kind, payload, wait_seconds=wait_seconds, fields=fields)
        )

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> Sequence[BatchItem]:
        """Accepts up to 10,000 jobs, all or none; one item a job, in the order given. Errors point at ``/jobs/57/…``."""
        return await self._transport.result(operations.enqueue_many(self._rules, jobs))

    async def get(self, job_id: UUID | str, *, wait_seconds: float = 0.0) -> Job:
        """The job; with ``wait_seconds`` once it has finished, if it does by then."""
        return await self._transport.result(operations.get(self._rules, job_id, wait_seconds=wait_seconds))

    async def wait(self, job_id: UUID | str, *, timeout_seconds: float | None = None) -> Job:
        """The job once it has finished, whatever it came to. Raises TimeoutError; the job runs on."""
        return await self._transport.result(operations.wait(self._rules, job_id, timeout_seconds=timeout_seconds))

    def list(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        """All jobs that the filters leave, newest first, page by page; without payload and result unless ``include`` asks."""
        return self._transport.items(operations.pages(self._rules, "/jobs", filters))

    async def page(self, **filters: Unpack[JobFilters]) -> JobPage:
        """One page of jobs; ``next_cursor``, given as ``cursor``, asks for the next."""
        return await self._transport.result(operations.page(self._rules, "/jobs", filters))

    def dead(self, **filters: Unpack[DeadFilters]) -> AsyncIterator[Job]:
        """All dead letters that the filters leave."""
        return self._transport.items(operations.pages(self._rules, "/dead", filters))

    async def dead_page(self, **filters: Unpack[DeadFilters]) -> JobPage:
        """One page of dead letters."""
        return await self._transport.result(operations.page(self._rules, "/dead", filters))

    async def events(self, job_id: UUID | str) -> Sequence[Event]:
        """The job's history so far, whole."""
        return await self._transport.result(operations.events(self._rules, job_id))

    def follow(self, job_id: UUID | str) -> AsyncIterator[Event | Progress]:
        """Events as they happen, each once and in order, and progress between them, until the job has finished.

        Resumes by itself when the connection is lost or the service is replaced.
        """
        return self._transport.items(following.follow(self._rules, job_id))

    async def cancel(
        self, job_id: UUID | str, *, wait_seconds: float = 0.0, **fields: Unpack[CancelFields]
    ) -> CancelReceipt:
        """Asks for cancellation; the receipt says what is true so far, or after ``wait_seconds`` at most."""
        return await self._transport.result(
            operations.cancel(self._rules, job_id, wait_seconds=wait_seconds, fields=fields)
        )

    async def retry(self, job_id: UUID | str, **fields: Unpack[RetryFields]) -> Job:
        """Puts a dead or failed job back. With ``version`` it is retried once, whatever happens to the answer."""
        return await self._transport.result(operations.retry(self._rules, job_id, fields))

    async def artifacts(self, job_id: UUID | str) -> Sequence[ArtifactInfo]:
        """What the job left for its submitter."""
        return await self._transport.result(operations.artifacts(self._rules, job_id))

    def download(self, job_id: UUID | str, name: str) -> AsyncIterator[bytes]:
        """An artifact, piece by piece; what breaks off is gone on with."""
        return self._transport.items(following.download(self._rules, job_id, name))

    def workers(self) -> AsyncIterator[Worker]:
        """All workers that the service knows."""
        return self._transport.items(operations.workers(self._rules))

    async def claim(
        self, worker_id: str, queues: Sequence[str], *, wait_seconds: float = 0.0, **fields: Unpack[ClaimFields]
    ) -> ClaimAnswer:
        """Leases due jobs (``max_jobs``, 1 unless given); none after ``wait_seconds``, of which one call waits 20 at most.

        Not repeated once it was sent: leases whose answer got lost are held by nobody until they expire.
        """
        return await self._transport.result(
            operations.claim(
                self._rules, {**fields, "worker_id": worker_id, "queues": queues}, wait_seconds=wait_seconds
            )
        )

    async def heartbeat(self, leases: Iterable[Beat]) -> Sequence[HeartbeatManyItem]:
        """Keeps leases; one item a lease, in the order given, with a ``problem`` where that one is lost."""
        return await self._transport.result(operations.heartbeat(self._rules, leases))

    async def settle(self, outcomes: Iterable[LeaseOutcome]) -> Sequence[SettleManyItem]:
        """Reports outcomes; one item an outcome, in the order given. Repeating one is harmless."""
        return await self._transport.result(operations.settle(self._rules, outcomes))
