"""Workers over HTTP that the harness itself plays: honest ones, and ones that come too late and try all the same."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.caller import Answer, Caller
from tests.chaos.handlers import HELD_QUEUE

LEASE_SECONDS = 1.0
_GIVE_UP_SECONDS = 60.0


def digest_of(token: str) -> str:
    """What the database keeps of a token: the ledger keeps no more."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A lease that was granted."""

    job: str
    token: str
    fence: int

    @property
    def facts(self) -> dict[str, Any]:
        return {"job": self.job, "token": digest_of(self.token), "fence": self.fence}


@dataclass(slots=True)
class Holders:
    """``count`` workers over HTTP on the held queue. Once ``honest``, nobody is late on purpose."""

    caller: Caller
    count: int = 4
    honest: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until it is stopped; leases in hand are settled first."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(self._work(self.caller.another(f"h{number}"), f"holder-{number}"))

    async def _work(self, caller: Caller, worker: str) -> None:
        while not self.stopping.is_set():
            for hold in await claim(caller, worker):
                ways = ("honest", "late", "repeats", "fails", "releases", "vanishes")
                way = "honest" if self.honest else caller.chance.choice(ways)
                await getattr(self, f"_{way}")(caller, hold)
            await asyncio.sleep(caller.chance.uniform(0.05, 0.3))

    async def _honest(self, caller: Caller, hold: Hold) -> None:
        for _ in range(caller.chance.randint(0, 3)):
            await heartbeat(caller, hold)
            await asyncio.sleep(LEASE_SECONDS / 5)
        await settle(caller, hold, "complete", result=hold.fence)

    async def _repeats(self, caller: Caller, hold: Hold) -> None:
        """The same outcome again, as if its answer had been lost; then another one."""
        await settle(caller, hold, "complete", result=hold.fence)
        await settle(caller, hold, "complete", result=hold.fence)
        await settle(caller, hold, "complete", result="another")

    async def _fails(self, caller: Caller, hold: Hold) -> None:
        await settle(caller, hold, "fail", error={"kind": "transient", "message": "the holder says so"})

    async def _releases(self, caller: Caller, hold: Hold) -> None:
        await settle(caller, hold, "release")

    async def _vanishes(self, caller: Caller, hold: Hold) -> None:
        """Is never heard of again."""

    async def _late(self, caller: Caller, hold: Hold) -> None:
        """Sleeps through its lease until somebody else may have the job, then tries everything with its old token."""
        await until_taken_back(caller, hold)
        await try_everything(caller, hold)


async def claim(
    caller: Caller,
    worker: str,
    *,
    limit: int = 2,
    queues: Sequence[str] = (HELD_QUEUE,),
    lease_seconds: float = LEASE_SECONDS,
    server: int | None = None,
) -> list[Hold]:
    """Leases, if there are any. What an answer that was lost has leased is held by nobody."""

    def pick(answer: Answer) -> dict[str, Any]:
        return {
            "leases": [
                {
                    "job": lease["job"]["id"],
                    "token": digest_of(lease["lease_token"]),
                    "fence": lease["job"]["version"],
                    "expires_at": lease["lease_expires_at"],
                }
                for lease in answer.body["leases"]
            ]
        }

    body = {"worker_id": worker, "queues": list(queues), "max_jobs": limit, "lease_seconds": lease_seconds}
    answer = await caller.once(
        "claim", "POST", "/leases", json=body, pick=pick, worker=worker, lease_seconds=lease_seconds, server=server
    )
    if answer is None or not answer.ok:
        return []
    return [
        Hold(job=lease["job"]["id"], token=lease["lease_token"], fence=lease["job"]["version"])
        for lease in answer.body["leases"]
    ]


async def heartbeat(caller: Caller, hold: Hold, *, server: int | None = None) -> Answer | None:
    """A sign of life; None when nobody knows whether it was heard."""

    def pick(answer: Answer) -> dict[str, Any]:
        return {"expires_at": answer.body["lease_expires_at"]}

    return await caller.once(
        "heartbeat",
        "POST",
        f"/jobs/{hold.job}/heartbeat",
        json={"lease_token": hold.token},
        pick=pick,
        server=server,
        **hold.facts,
    )


async def settle(caller: Caller, hold: Hold, verb: str, **fields: Any) -> Answer:
    """Reports an outcome until it is answered."""

    def pick(answer: Answer) -> dict[str, Any]:
        return {"state": answer.body["state"], "version": answer.body["version"]}

    return await caller.until_answered(
        verb,
        "POST",
        f"/jobs/{hold.job}/{verb}",
        json={"lease_token": hold.token, **fields},
        pick=pick,
        outcome=fields or None,
        **hold.facts,
    )


async def until_taken_back(caller: Caller, hold: Hold) -> None:
    """Waits until the job has gone on without this holder."""
    async with asyncio.timeout(_GIVE_UP_SECONDS):
        while True:
            answer = await caller.once("read", "GET", f"/jobs/{hold.job}", job=hold.job)
            if answer is not None and answer.ok and answer.body["version"] > hold.fence:
                return
            await asyncio.sleep(0.1)


async def try_everything(caller: Caller, hold: Hold) -> None:
    """Every verb of a holder, with a token that is no longer current."""
    await heartbeat(caller, hold)
    await settle(caller, hold, "complete", result="too late")
    await settle(caller, hold, "fail", error={"kind": "permanent", "message": "too late"})
    await settle(caller, hold, "release")
