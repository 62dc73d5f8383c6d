"""What a scenario has to itself: a queue, a proxy, and a process of the worker; and its eyes and hands at the service."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from tenure.conformance.messages import Statement
from tenure.conformance.proxy import Proxy
from tenure.conformance.service import TestService
from tenure.jobs.ids import part_of
from tenure.jobs.model import Claimed
from tenure.store.claim import claim
from tenure.store.database import Database
from tenure.store.reap import reap_expired

KIND = "verify.worker"
_POLL_SECONDS = 0.02
_OUTPUT_BYTES = 2_000
_BYPASSES = ("TENURE_DATABASE_URL", "TENURE_DATABASE_SCHEMA")
"""With these a worker could go around the proxy."""

_AGE = "UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1 AND state = 'running'"


class RuleBroken(Exception):
    """The worker did not do what the scenario asks for; the message says what it did instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """``lease_seconds`` of every job; ``patience_seconds`` is what a worker may take for what has no rule of its own."""

    lease_seconds: float
    patience_seconds: float


@dataclass(slots=True, kw_only=True)
class Bench:
    """One scenario's bench."""

    service: TestService
    database: Database
    proxy: Proxy
    http: httpx.AsyncClient
    queue: str
    timing: Timing
    log: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    worker: asyncio.subprocess.Process | None = field(default=None)

    @property
    def lease_seconds(self) -> float:
        return self.timing.lease_seconds

    async def start_worker(self) -> None:
        """Starts COMMAND; it is not yet known to work."""
        environment = {name: value for name, value in self.environment.items() if name not in _BYPASSES}
        environment |= {"TENURE_URL": self.proxy.url, "TENURE_QUEUE": self.queue, "TENURE_KIND": KIND}
        with self.log.open("wb") as output:
            self.worker = await asyncio.create_subprocess_exec(
                *self.command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def terminate_worker(self) -> None:
        """SIGTERM to the process that was started, as a supervisor sends it."""
        assert self.worker is not None
        self.worker.send_signal(signal.SIGTERM)

    async def exited(self, *, within_seconds: float) -> None:
        """Waits for the worker's end."""
        assert self.worker is not None
        try:
            await asyncio.wait_for(self.worker.wait(), within_seconds)
        except TimeoutError:
            raise RuleBroken(f"it still runs {within_seconds:.0f} s after SIGTERM") from None

    async def end_worker(self) -> None:
        """Ends what is left of the worker and of what it started."""
        if self.worker is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.worker.pid, signal.SIGKILL)
        await self.worker.wait()

    def output(self) -> str:
        """The end of what the worker wrote."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_OUTPUT_BYTES:].decode(errors="replace").strip()

    async def enqueue(self, do: str, *, result: Any = None, **fields: Any) -> str:
        """A job that does this; ``seconds``, ``kind`` and ``message`` go into its payload. Returns its id."""
        told = {name: fields.pop(name) for name in ("seconds", "kind", "message") if name in fields}
        answer = await self.http.post(
            "/jobs",
            json={
                "kind": KIND,
                "queue": self.queue,
                "payload": {"do": do, **told, "result": result},
                "lease_seconds": self.lease_seconds,
                **fields,
            },
        )
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def job(self, job_id: str) -> dict[str, Any]:
        """The job as it is now, with its events."""
        answer = await self.http.get(f"/jobs/{job_id}", params={"include": "events"})
        answer.raise_for_status()
        return dict(answer.json())

    async def cancel(self, job_id: str) -> None:
        """Asks for cancellation."""
        (await self.http.post(f"/jobs/{job_id}/cancel", json={"reason": "verify-worker"})).raise_for_status()

    async def in_state(
        self, job_id: str, *states: str, within_seconds: float | None = None, what: str
    ) -> dict[str, Any]:
        """Waits until the job is in one of the states; ``what`` names it in the complaint."""

        async def there() -> bool:
            return (await self.job(job_id))["state"] in states

        try:
            await self.until(there, within_seconds=within_seconds, complaint="")
        except RuleBroken as broken:
            now = (await self.job(job_id))["state"]
            seen = f"{what} is {now} instead of {' or '.join(states)}"
            after = f" after {self._limit(within_seconds):.0f} s"
            raise RuleBroken(f"{broken}; {seen}" if str(broken) else seen + after) from None
        return await self.job(job_id)

    async def until(
        self,
        condition: Callable[[], bool] | Callable[[], Coroutine[Any, Any, bool]],
        *,
        complaint: str,
        within_seconds: float | None = None,
    ) -> None:
        """Waits for the condition; raises RuleBroken with the complaint when it takes too long, or the worker ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limit(within_seconds)
        while True:
            holds = condition()
            if not isinstance(holds, bool):
                holds = await holds
            if holds:
                return
            if self.worker is not None and self.worker.returncode is not None:
                raise RuleBroken(f"it ended by itself, with exit code {self.worker.returncode}")
            if loop.time() > end:
                raise RuleBroken(complaint)
            await asyncio.sleep(_POLL_SECONDS)

    def _limit(self, within_seconds: float | None) -> float:
        return self.timing.patience_seconds if within_seconds is None else within_seconds

    async def waits_for_work(self) -> None:
        """Waits until the worker asks for work."""
        await self.until(
            lambda: any(exchange.is_claim for exchange in self.proxy.exchanges),
            complaint="it never asked for work with POST /leases",
        )

    async def was_kept(self, job_id: str) -> None:
        """Waits until the worker holds the job and has sent a heartbeat for it that was answered."""
        await self.in_state(job_id, "running", what="the job")
        await self.until(
            lambda: any(one.verb == "heartbeat" and one.status == 200 for one in self.proxy.statements(job_id)),
            complaint="it sent no heartbeat for a job that it holds",
        )

    def granted_at(self, job_id: str) -> float:
        """When the worker was last told that the job is its own, by the event loop's clock."""
        return max(
            exchange.answered_at
            for exchange in self.proxy.exchanges
            if exchange.answered_at is not None and any(lease["job"]["id"] == job_id for lease in exchange.granted)
        )

    def judge_lease_length(self) -> None:
        """Raises RuleBroken when the worker asked for leases of a length of its own: then there is nothing to judge."""
        for exchange in self.proxy.exchanges:
            if (
                exchange.is_claim
                and isinstance(exchange.asked, dict)
                and exchange.asked.get("lease_seconds") is not None
            ):
                raise RuleBroken(
                    f"it claims with lease_seconds {exchange.asked['lease_seconds']}, so this cannot be judged: leave it out"
                )

    async def take_over(self, job_id: str) -> Claimed:
        """The worker's lease ends and somebody else holds the job, in one moment: nobody comes in between."""
        async with self.database.transaction() as connection:
            await connection.execute(_AGE, UUID(job_id))
            part = part_of(UUID(job_id), connection.parts)
            await reap_expired(connection, part=part)
            claimed = await claim(
                connection,
                part=part,
                worker_id="verify-worker",
                queues=[self.queue],
                kinds=None,
                limit=1,
                lease_seconds=3_600.0,
                default_lease_seconds=3_600.0,
            )
        if [str(one.job.id) for one in claimed] != [job_id]:
            raise RuleBroken("the job could not be taken over: the worker did not hold it any more")
        return claimed[0]

    async def complete(self, claimed: Claimed, result: Any) -> None:
        """Reports success for what was taken over."""
        answer = await self.http.post(
            f"/jobs/{claimed.job.id}/complete", json={"lease_token": claimed.token, "result": result}
        )
        answer.raise_for_status()

    def settles(self, job_id: str) -> list[Statement]:
        """The outcomes that the worker reported for the job, in order."""
        return [one for one in self.proxy.statements(job_id) if one.settles]


@asynccontextmanager
async def bench(
    service: TestService,
    eyes: TestService,
    database: Database,
    *,
    queue: str,
    timing: Timing,
    log: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> AsyncIterator[Bench]:
    """A bench at the service; what is left of the worker is ended with it. ``eyes``: a service that is never stopped."""
    async with (
        Proxy(service.url) as proxy,
        httpx.AsyncClient(base_url=eyes.url, timeout=30.0) as http,
    ):
        made = Bench(
            service=service,
            database=database,
            proxy=proxy,
            http=http,
            queue=queue,
            timing=timing,
            log=log,
            command=command,
            environment=environment,
        )
        try:
            yield made
        finally:
            await made.end_worker()
