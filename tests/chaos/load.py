"""The load: callers that enqueue, repeat what was not answered, read, cancel, and retry what died."""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.caller import Answer, Caller, job_of, jobs_of, receipt_of
from tests.chaos.orders import Orders, Request

_KNOWN_JOBS = 2_000
_RETRIES = 2
"""How often one dead job is retried: a bug is not mended by that."""


@dataclass(slots=True)
class Load:
    """All callers of a run. ``per_second`` is how many jobs they ask for together, ``jobs`` how many at most."""

    caller: Caller
    orders: Orders
    per_second: float
    jobs: int
    chance: random.Random
    batch_jobs: int = 20
    accepted: int = 0
    asked: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _known: "deque[str]" = field(default_factory=lambda: deque(maxlen=_KNOWN_JOBS))
    _retried: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Until it is stopped, or all jobs are asked for; what was begun is seen to its end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submit(group))
            group.create_task(self._cancel_any())
            group.create_task(self._retry_dead())
            group.create_task(self._read())
            await self.stopping.wait()

    def stop(self) -> None:
        """Asks for nothing new. What was not answered is still repeated, what is to be canceled still is."""
        self.stopping.set()

    async def _submit(self, group: asyncio.TaskGroup) -> None:
        number = 0
        while not self.stopping.is_set() and self.asked < self.jobs:
            number += 1
            caller = self.caller.another(f"s{number}")
            way = self.chance.choices(("plain", "keyed", "twice", "twins", "batch"), weights=(10, 50, 10, 10, 8))[0]
            if way == "batch":
                requests = [self.orders.next() for _ in range(self.chance.randint(2, self.batch_jobs * 2))]
                work = self._batch(caller, requests)
            else:
                requests = [self.orders.next()]
                work = getattr(self, f"_{way}")(caller, requests[0])
            self.asked += len(requests)
            group.create_task(self._and_cancel(work, caller, requests))
            await self._pause(len(requests) / self.per_second * self.chance.uniform(0.5, 1.5))
        self.stopping.set()

    async def _and_cancel(self, work: Any, caller: Caller, requests: Sequence[Request]) -> None:
        """Asks for the jobs; then cancels those that end by nothing else."""
        ids: list[str] = await work
        for job_id, request in zip(ids, requests, strict=False):
            if request.to_cancel:
                await asyncio.sleep(caller.chance.uniform(0.0, 2.0))
                await self.cancel(caller, job_id, version=None)

    async def _plain(self, caller: Caller, request: Request) -> list[str]:
        """Without a key: an answer that does not come is not asked for again."""
        if request.to_cancel:  # it would never end if nobody knew it
            return await self._keyed(caller, request)
        answer = await caller.once(
            "enqueue", "POST", "/jobs", json=request.body, pick=job_of, n=request.n, kind=request.kind
        )
        return await self._took(caller, [answer.body["id"]] if answer is not None and answer.ok else [])

    async def _keyed(self, caller: Caller, request: Request) -> list[str]:
        answer = await self.enqueue(caller, request)
        return await self._took(caller, [answer.body["id"]] if answer.ok else [])

    async def _twice(self, caller: Caller, request: Request) -> list[str]:
        """The same again after it was accepted; then another body under the same key."""
        ids = await self._keyed(caller, request)
        await self.enqueue(caller, request)
        other = {**request.body, "priority": 1}
        await caller.until_answered(
            "enqueue other",
            "POST",
            "/jobs",
            json=other,
            headers={"Idempotency-Key": request.n},
            pick=job_of,
            n=request.n,
        )
        return ids

    async def _twins(self, caller: Caller, request: Request) -> list[str]:
        """The same from two callers at the same time, through two servers."""
        first, second = await asyncio.gather(
            self.enqueue(caller, request), self.enqueue(caller.another("twin"), request)
        )
        return await self._took(caller, [answer.body["id"] for answer in (first, second) if answer.ok][:1])

    async def _batch(self, caller: Caller, requests: Sequence[Request]) -> list[str]:
        body = {"jobs": [{**request.body, "idempotency_key": request.n} for request in requests]}
        answer = await caller.until_answered(
            "batch",
            "POST",
            "/jobs/batch",
            json=body,
            pick=jobs_of,
            ns=[request.n for request in requests],
            kinds=[request.kind for request in requests],
        )
        return await self._took(caller, [item["job"]["id"] for item in answer.body["items"]] if answer.ok else [])

    async def enqueue(self, caller: Caller, request: Request) -> Answer:
        """One job, under its key, until it is answered."""
        return await caller.until_answered(
            "enqueue",
            "POST",
            "/jobs",
            json=request.body,
            headers={"Idempotency-Key": request.n},
            pick=job_of,
            n=request.n,
            key=request.n,
            kind=request.kind,
        )

    async def cancel(self, caller: Caller, job_id: str, *, version: int | None) -> Answer:
        """One cancellation, until it is answered."""
        return await caller.until_answered(
            "cancel",
            "POST",
            f"/jobs/{job_id}/cancel",
            json={"version": version, "reason": "chaos"},
            pick=receipt_of,
            job=job_id,
            version=version,
        )

    async def _took(self, caller: Caller, ids: list[str]) -> list[str]:
        """What was accepted is there at once, whichever server is asked."""
        self.accepted += len(ids)
        self._known.extend(ids)
        if ids and caller.chance.random() < 0.5:
            await self._get(caller, caller.chance.choice(ids))
        return ids

    async def _get(self, caller: Caller, job_id: str) -> dict[str, Any] | None:
        answer = await caller.once("read", "GET", f"/jobs/{job_id}", pick=job_of, job=job_id)
        return dict(answer.body) if answer is not None and answer.ok else None

    async def _cancel_any(self) -> None:
        """Cancels what it finds: by the version it read, by the one before, by none; and once more."""
        caller = self.caller.another("canceler")
        while not self.stopping.is_set():
            await self._pause(caller.chance.uniform(0.2, 1.0))
            job = await self._get(caller, caller.chance.choice(self._known)) if self._known else None
            if job is None or job["state"] not in ("queued", "running"):
                continue
            version = caller.chance.choice((job["version"], job["version"] - 1 or None, None))
            await self.cancel(caller, job["id"], version=version)
            if caller.chance.random() < 0.5:
                await self.cancel(caller, job["id"], version=version)

    async def _retry_dead(self) -> None:
        """An operator's rounds."""
        caller = self.caller.another("operator")
        while not self.stopping.is_set():
            await self._pause(caller.chance.uniform(1.0, 2.0))
            page = await caller.once("list", "GET", "/dead?limit=20")
            for job in page.body["items"] if page is not None and page.ok else ():
                if self._retried.get(job["id"], 0) < _RETRIES and caller.chance.random() < 0.5:
                    self._retried[job["id"]] = self._retried.get(job["id"], 0) + 1
                    await caller.once(
                        "retry",
                        "POST",
                        f"/jobs/{job['id']}/retry",
                        json={"version": job["version"]},
                        pick=job_of,
                        job=job["id"],
                        version=job["version"],
                    )

    async def _read(self) -> None:
        """Whoever looks on: lists, histories, workers."""
        caller = self.caller.another("reader")
        while not self.stopping.is_set():
            await self._pause(caller.chance.uniform(0.3, 1.0))
            paths = ["/jobs?limit=50", "/jobs?state=running&limit=20", "/workers", "/jobs?state=dead&include=payload"]
            if self._known:
                paths.append(f"/jobs/{caller.chance.choice(self._known)}/events")
            await caller.once("list", "GET", caller.chance.choice(paths))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass
