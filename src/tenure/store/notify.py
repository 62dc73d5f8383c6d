"""Wake-ups: hints that something may be worth a look, on a channel of the schema's own.

A hint is never the only signal (whoever waits also polls) and carries no data that matters. It is sent after the commit,
on a connection of its own, at most every few milliseconds: NOTIFY inside a busy transaction takes a lock that all
commits of the whole server wait for.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg

from tenure.store.database import TRANSIENT_ERRORS, Database, close_quietly, connect

logger = logging.getLogger(__name__)

_DEBOUNCE_SECONDS = 0.005
"""A burst of enqueues becomes one NOTIFY; five milliseconds are lost in a pickup time of about that."""

_RECONNECT_SECONDS = 1.0
_ALIVE_CHECK_SECONDS = 15.0
_MAX_PAYLOAD_BYTES = 7_000
"""PostgreSQL takes 8,000. What does not fit is left out: a hint that never comes costs one poll interval."""

WORK = "work"
CANCEL = "cancel"
WORKER = "worker"

Callback = Callable[[str, str], None]
"""Called with a topic ("work", "cancel", "worker") and a subject (a queue's name, a job's id, a worker's id)."""


class Bell:
    """Sends hints, debounced. Until it is opened, ``ring`` only reaches listeners of this process."""

    def __init__(self, database: Database, listener: "Listener | None" = None) -> None:
        self._database = database
        self._listener = listener
        self._pending: dict[tuple[str, str], None] = {}
        self._rung = asyncio.Event()

    def ring(self, topic: str, subject: str) -> None:
        """Tells everyone soon, and this process at once. Call it after the commit."""
        if self._listener is not None:
            self._listener.deliver(topic, subject)
        self._pending[topic, subject] = None
        self._rung.set()

    async def run(self) -> None:
        """Sends what was rung, until cancelled. An outage drops hints; it never stops the loop."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            pending, self._pending = list(self._pending), {}
            try:
                async with self._database.connection() as connection:
                    for payload in _packed(pending):
                        await connection.execute("SELECT pg_notify($1, $2)", channel_of(self._database.schema), payload)
            except Exception as error:
                logger.warning("a wake-up was not sent, polling will do: %s", error)
                await asyncio.sleep(_RECONNECT_SECONDS)
            await asyncio.sleep(_DEBOUNCE_SECONDS)


class Listener:
    """The process's one LISTEN connection; it reconnects for ever and tells whether it can be relied on now."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._callbacks: list[Callback] = []
        self.healthy = False

    @contextlib.contextmanager
    def subscribed(self, callback: Callback) -> Any:
        """Calls back on every hint while the block runs, on the listener's event loop."""
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def subscribe(self, callback: Callback) -> None:
        """Calls back on every hint from now on."""
        self._callbacks.append(callback)

    def deliver(self, topic: str, subject: str) -> None:
        """Passes a hint on to this process's subscribers."""
        for callback in list(self._callbacks):
            try:
                callback(topic, subject)
            except Exception:
                logger.exception("a subscriber to wake-ups failed")

    async def run(self) -> None:
        """Listens until cancelled."""
        while True:
            try:
                async with self._connected() as raw:
                    self.healthy = True
                    # Anything may have happened while nobody listened.
                    self.deliver(WORK, "*")
                    cut = asyncio.Event()
                    raw.add_termination_listener(functools.partial(_set, cut))
                    while not cut.is_set():
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(cut.wait(), _ALIVE_CHECK_SECONDS)
                            break
                        # A connection whose other end silently went away is found out only by asking.
                        await raw.fetchval("SELECT 1")
            except TRANSIENT_ERRORS as error:
                if self.healthy:
                    logger.warning("lost the connection that listens for wake-ups, polling meanwhile: %s", error)
            except Exception:
                logger.exception("the listener for wake-ups failed, polling meanwhile")
            else:
                logger.warning("the connection that listens for wake-ups was closed, polling meanwhile")
            finally:
                self.healthy = False
            await asyncio.sleep(_RECONNECT_SECONDS)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        raw = await connect(self._database.settings, "tenure listener")
        try:
            await raw.add_listener(channel_of(self._database.schema), self._on_notification)
            yield raw
        finally:
            await close_quietly(raw)

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        for line in str(payload).split("\n"):
            topic, _, subject = line.partition(":")
            self.deliver(topic, subject)


def _set(event: asyncio.Event, _connection: Any) -> None:
    event.set()


def channel_of(schema: str) -> str:
    """The NOTIFY channel of a schema."""
    return f"tenure_{schema}"


def _packed(pending: list[tuple[str, str]]) -> list[str]:
    """Lines in as few payloads as fit."""
    payloads: list[str] = []
    lines: list[str] = []
    size = 0
    for topic, subject in pending:
        line = f"{topic}:{subject}"
        length = len(line.encode()) + 1
        if length > _MAX_PAYLOAD_BYTES or "\n" in subject:
            continue
        if size + length > _MAX_PAYLOAD_BYTES:
            payloads.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += length
    if lines:
        payloads.append("\n".join(lines))
    return payloads
