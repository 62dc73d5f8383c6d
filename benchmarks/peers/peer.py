"""What the script of every peer in Python shares: its command line, and the loops that time calls.

A peer subclasses `Peer` and ends with ``main(ItsClass)``. The actions, each a process of its own:

- ``describe``: versions, settings, and the query that counts unfinished jobs, as JSON;
- ``install``: makes the peer's tables in an empty database;
- ``fill``: puts jobs in, as fast as the peer can;
- ``enqueue``: puts jobs in one by one, from so many callers at once, and times each call;
- ``bulk``: puts jobs in so many a call, from one caller, and times each call;
- ``pace``: puts so many a second in, on time whether or not earlier calls are through, each with the moment of its call;
- ``work``: works until it is ended; what its handlers do is in the recorder's file.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import uvloop

from benchmarks.recording import SENT_AT, recorder_of_environment

Record = Callable[[dict[str, Any]], None]

ACTIONS = ("describe", "install", "fill", "enqueue", "bulk", "pace", "work")

_FILL_BATCH = 1_000
_WARM_SECONDS = 0.5
"""Calls before the timing: connections, prepared statements, caches."""


class Peer:
    """One queue. ``tuned`` asks for the settings with which its documentation promises the most; `settings` names them."""

    packages: ClassVar[Sequence[str]] = ()
    unfinished: ClassVar[str] = ""
    """SQL that counts the jobs which are not finished yet."""

    def __init__(self, database_url: str, *, tuned: bool, callers: int) -> None:
        self.database_url = database_url
        self.tuned = tuned
        self.callers = callers

    @property
    def settings(self) -> dict[str, Any]:
        """What differs between "defaults" and "tuned", as in force."""
        return {}

    async def install(self) -> None:
        """Makes the tables."""
        raise NotImplementedError

    async def open(self) -> None:
        """Gets ready to enqueue."""
        raise NotImplementedError

    async def close(self) -> None:
        """Lets go of what `open` took."""
        raise NotImplementedError

    async def enqueue(self, payload: dict[str, Any]) -> None:
        """Puts one job in; it is durable on return."""
        raise NotImplementedError

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """Puts jobs in by the peer's own call for many."""
        raise NotImplementedError

    async def work(self, record: Record) -> None:
        """Works until the process is ended; a handler calls ``record(payload)`` and nothing else."""
        raise NotImplementedError


def payloads(start: int, count: int) -> list[dict[str, Any]]:
    return [{"number": number} for number in range(start, start + count)]


async def fill(peer: Peer, jobs: int) -> dict[str, Any]:
    await peer.open()
    for start in range(0, jobs, _FILL_BATCH):
        await peer.enqueue_many(payloads(start, min(_FILL_BATCH, jobs - start)))
    await peer.close()
    return {"jobs": jobs}


async def bulk(peer: Peer, seconds: float, batch: int) -> dict[str, Any]:
    await peer.open()
    await peer.enqueue_many(payloads(0, batch))
    calls: list[float] = []
    began = time.perf_counter()
    while (call_began := time.perf_counter()) < began + seconds:
        await peer.enqueue_many(payloads(0, batch))
        calls.append(time.perf_counter() - call_began)
    took = time.perf_counter() - began
    await peer.close()
    return {"jobs": len(calls), "seconds": took, "calls": calls}


async def enqueue(peer: Peer, seconds: float) -> dict[str, Any]:
    await peer.open()

    async def until(end: float, calls: list[float]) -> None:
        async def caller() -> None:
            while (began := time.perf_counter()) < end:
                await peer.enqueue({"number": 1})
                calls.append(time.perf_counter() - began)

        await asyncio.gather(*(caller() for _ in range(peer.callers)))

    await until(time.perf_counter() + _WARM_SECONDS, [])
    calls: list[float] = []
    began = time.perf_counter()
    await until(began + seconds, calls)
    took = time.perf_counter() - began
    await peer.close()
    return {"jobs": len(calls), "seconds": took, "calls": calls}


async def pace(peer: Peer, jobs: int, rate: float) -> dict[str, Any]:
    await peer.open()
    await asyncio.gather(*(peer.enqueue({"number": 1}) for _ in range(peer.callers)))
    await asyncio.sleep(_WARM_SECONDS)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(jobs):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(peer.enqueue({SENT_AT: time.time()}))
    took = time.perf_counter() - began
    await peer.close()
    return {"jobs": jobs, "seconds": took}


def main(make: type[Peer]) -> None:
    """Does what the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--database-url", default="")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=20.0)
    options = parser.parse_args()
    peer = make(options.database_url, tuned=options.tuned, callers=options.callers)

    async def act() -> dict[str, Any]:
        match options.action:
            case "install":
                await peer.install()
            case "fill":
                return await fill(peer, options.jobs)
            case "enqueue":
                return await enqueue(peer, options.seconds)
            case "bulk":
                return await bulk(peer, options.seconds, options.batch)
            case "pace":
                return await pace(peer, options.jobs, options.rate)
            case "work":
                await peer.work(recorder_of_environment())
        return {}

    if options.action == "describe":
        versions = {package: version(package) for package in make.packages}
        found: dict[str, Any] = {"versions": versions, "settings": peer.settings, "unfinished": make.unfinished}
    else:
        # A tuned peer gets the event loop that Tenure always has.
        found = uvloop.run(act()) if options.tuned else asyncio.run(act())
    sys.stdout.write(json.dumps(found) + "\n")
