"""A cheap submitter over HTTP, in a process of its own: ``python -m benchmarks.load``.

It shares the machine with what it measures, so it does as little as it can: requests are bytes made beforehand, answers are
read only as far as status and length, on kept connections, each a plain asyncio protocol on uvloop. On the machine that the
documented figures are from, it takes about a tenth of the time that the service takes for the same requests.

Closed loop (``--callers``): each caller sends its next request when its last is answered. Open loop (``--rate``): requests
are sent on time whether or not earlier ones are answered, so a service that falls behind shows it as delay.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
import uvloop

from benchmarks.application import NOOP, QUEUE
from benchmarks.recording import SENT_AT

_WARM_SECONDS = 0.5
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_TIMEOUT_SECONDS = 300


class Refused(Exception):
    """The service answered with something else than 2xx."""


class Line(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionError("the service closed the connection"))

    async def ask(self, request: bytes) -> None:
        """Sends, and returns when the whole answer is here. Raises Refused."""
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._answered

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        end = received.find(_HEAD_END)
        if end < 0:
            return
        at = received.lower().find(_LENGTH, 0, end) if _LENGTH not in received[:end] else received.find(_LENGTH)
        length = int(received[at + len(_LENGTH) : received.find(b"\r", at)])
        if len(received) < end + len(_HEAD_END) + length:
            return
        self._received = b""
        assert self._answered is not None
        if received[9:10] == b"2":
            self._answered.set_result(None)
        else:
            self._answered.set_exception(Refused(received[:600].decode(errors="replace")))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def post(url: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """The bytes of a request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def job(payload: dict[str, Any]) -> dict[str, Any]:
    return {"kind": NOOP, "queue": QUEUE, "payload": payload, "timeout_seconds": _TIMEOUT_SECONDS}


def one_job(url: str) -> bytes:
    return post(url, "/jobs", orjson.dumps(job({"number": 1})))


def many_jobs(url: str, batch: int) -> bytes:
    return post(url, "/jobs/batch", orjson.dumps({"jobs": [job({"number": number}) for number in range(batch)]}))


def job_lines(url: str, batch: int) -> bytes:
    lines = b"\n".join(orjson.dumps(job({"number": number})) for number in range(batch))
    return post(url, "/jobs/batch", lines, "application/x-ndjson")


async def connect(url: str, count: int) -> list[Line]:
    where = urlsplit(url)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Line, host, port))[1] for _ in range(count)]


async def closed_loop(url: str, request: bytes, *, callers: int, seconds: float) -> dict[str, Any]:
    """Every caller as fast as it is answered."""
    lines = await connect(url, callers)

    async def until(end: float, calls: list[float]) -> None:
        async def caller(line: Line) -> None:
            while (began := time.perf_counter()) < end:
                await line.ask(request)
                calls.append(time.perf_counter() - began)

        await asyncio.gather(*map(caller, lines))

    await until(time.perf_counter() + _WARM_SECONDS, [])
    calls: list[float] = []
    processor = time.process_time()
    began = time.perf_counter()
    await until(began + seconds, calls)
    took = time.perf_counter() - began
    processor = time.process_time() - processor
    for line in lines:
        line.close()
    return {"jobs": len(calls), "seconds": took, "calls": calls, "processor_seconds": processor}


async def open_loop(url: str, *, rate: float, jobs: int) -> dict[str, Any]:
    """A job every so often, each with the moment just before it was sent."""
    idle = deque(await connect(url, 8))
    calls: list[float] = []

    async def submit() -> None:
        line = idle.popleft() if idle else (await connect(url, 1))[0]
        began = time.perf_counter()
        await line.ask(post(url, "/jobs", orjson.dumps(job({SENT_AT: time.time()}))))
        calls.append(time.perf_counter() - began)
        idle.append(line)

    for line in list(idle):
        await line.ask(one_job(url))
    await asyncio.sleep(_WARM_SECONDS)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(jobs):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(submit())
    for line in idle:
        line.close()
    return {"jobs": jobs, "seconds": time.perf_counter() - began, "calls": calls}


def main() -> None:
    """Submits as the command line says; prints what came of it as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("enqueue", "bulk", "ndjson", "pace"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=100)
    options = parser.parse_args()
    url = options.url

    async def act() -> dict[str, Any]:
        match options.action:
            case "enqueue":
                request = one_job(url)
            case "bulk":
                request = many_jobs(url, options.batch)
            case "ndjson":
                request = job_lines(url, options.batch)
            case _:
                return await open_loop(url, rate=options.rate, jobs=options.jobs)
        return await closed_loop(url, request, callers=options.callers, seconds=options.seconds)

    sys.stdout.write(json.dumps(uvloop.run(act())) + "\n")


if __name__ == "__main__":
    main()
