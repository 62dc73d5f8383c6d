"""A line to the service on loopback that writes down what passes, and spoils it when told to."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import urlsplit

from tenure.conformance.messages import Exchange, Message, Statement, statements

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Cuts the connection once: before the ``request`` is passed on, or when the service has sent its ``answer``."""

    loses: Literal["request", "answer"]
    matches: Callable[[Exchange], bool]


class Proxy:
    """Carries HTTP/1.1 to the service at ``url``, one request after the other on each connection.

    ``delay_seconds`` is how long every answer is held back. A service that cannot be reached is a connection that closes.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there = (parts.hostname or "", parts.port or 80)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._faults: list[Fault] = []
        self.delay_seconds = 0.0
        self.exchanges: list[Exchange] = []
        self.struck: list[Exchange] = []
        """What a fault has spoilt."""
        self.refused_at: list[float] = []
        """When the service could not be reached."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    @property
    def url(self) -> str:
        """What the worker is told."""
        assert self._server is not None, "not started"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose(self, loses: Literal["request", "answer"], matches: Callable[[Exchange], bool]) -> None:
        """Spoils the next request or answer that fits."""
        self._faults.append(Fault(loses=loses, matches=matches))

    def statements(self, job_id: str | None = None) -> list[Statement]:
        """What the worker said about leases so far, in order; of one job, or of all."""
        said = [one for exchange in self.exchanges for one in statements(exchange)]
        return [one for one in said if job_id is None or one.job_id == job_id]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._carry(_End(reader, writer))
        except (OSError, ValueError):
            pass  # one of the two went away, or spoke something else: what the other sees is a closed connection
        except asyncio.CancelledError:
            # The proxy ends. Swallowed, as nobody awaits this task: asyncio would report it as an error of the server's.
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _carry(self, caller: "_End") -> None:
        there: _End | None = None
        try:
            while (request := await caller.message(is_request=True)) is not None:
                exchange = Exchange(
                    method=request.method,
                    path=request.target.partition("?")[0],
                    asked=request.json(),
                    sent_at=_now(),
                )
                self.exchanges.append(exchange)
                if self._strikes("request", exchange):
                    return
                if there is None or there.closed:
                    there = await self._reach()
                answer = await self._ask(there, request, caller)
                if answer is None:
                    return
                exchange.status, exchange.answer = answer.status, answer.json()
                if self._strikes("answer", exchange):
                    return
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await caller.send(answer.raw)
                exchange.answered_at, exchange.heard = _now(), True
                if not (request.keeps_alive and answer.keeps_alive):
                    return
        finally:
            if there is not None:
                there.close()

    async def _reach(self) -> "_End":
        try:
            return _End(*await asyncio.open_connection(*self._there))
        except OSError:
            self.refused_at.append(_now())
            raise

    async def _ask(self, there: "_End", request: Message, caller: "_End") -> Message | None:
        """The service's answer; None when it broke off, or when the caller left, which the service then learns."""
        await there.send(request.raw)
        answering = asyncio.ensure_future(there.message(is_request=False))
        leaving = asyncio.ensure_future(caller.gone())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})

    def _strikes(self, moment: Literal["request", "answer"], exchange: Exchange) -> bool:
        for fault in self._faults:
            if fault.loses == moment and fault.matches(exchange):
                self._faults.remove(fault)
                self.struck.append(exchange)
                return True
        return False


class _End:
    """One end of a connection, from which whole messages are read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._early = b""

    @property
    def closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def message(self, *, is_request: bool) -> Message | None:
        """The next message; None when the connection ends before it is whole."""
        message = Message(is_request=is_request)
        while not message.complete:
            data, self._early = self._early or await self._reader.read(_CHUNK_BYTES), b""
            message.feed(data)
            if not data:
                return message if message.complete else None
        return message

    async def gone(self) -> None:
        """Returns when the other side has closed."""
        while data := await self._reader.read(_CHUNK_BYTES):
            self._early += data

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
