"""Several processes under one parent: it starts them, starts again those that die, and ends with them.

The parent does no work of its own. It holds what they share, the listening socket and the embedded PostgreSQL, and tells
them when to stop (`child.py`). A child is a whole ``tenure serve`` or ``tenure worker``, with a pool, a listener for wake-ups
and a worker id of its own; it starts as a new program, so nothing of a running event loop is copied.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.embedded import EmbeddedPostgres
from tenure.server.child import DRAIN, HURRY, READY
from tenure.server.running import signals

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0
"""A process that was up so long did not fail at its start: the next pause is the first one again."""
_KILL_SECONDS = 10.0
"""After a second signal processes end by themselves within seconds; one that does not is stuck."""
_WRONG_SETTINGS = 2
"""The exit code of a process that no new start would help."""


@dataclass(slots=True)
class _Child:
    number: int
    process: asyncio.subprocess.Process
    line: socket.socket
    began_at: float = field(default_factory=time.monotonic)

    def order(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            self.line.send(what)


class Supervisor:
    """Runs ``processes`` times ``tenure <arguments>``. ``environment`` is theirs, but for what tells them apart."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        processes: int,
        environment: Mapping[str, str],
        listener: socket.socket | None = None,
        postgres: EmbeddedPostgres | None = None,
    ) -> None:
        self._arguments = tuple(arguments)
        self._processes = processes
        self._environment = environment
        self._listener = listener
        self._postgres = postgres
        self._children: dict[int, _Child] = {}
        self._ready: set[int] = set()
        self._all_ready = asyncio.Event()
        self._someone_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._codes: list[int] = []
        self._given_up: int | None = None

    async def run(self, *, started: Callable[[], object] = lambda: None) -> int:
        """Until SIGTERM or SIGINT, or until no process is left; a second signal ends them at once. Returns the exit code.

        ``started`` is called once, when all are ready.
        """
        with signals() as signalled:
            try:
                if self._postgres is not None:
                    await asyncio.to_thread(self._postgres.start)
                return await self._run(signalled, started)
            finally:
                self._close_listener()
                if self._postgres is not None:
                    await asyncio.to_thread(self._postgres.stop)

    async def _run(self, signalled: "asyncio.Queue[signal.Signals]", started: Callable[[], object]) -> int:
        got = asyncio.ensure_future(signalled.get())
        children = asyncio.ensure_future(self._keep_all())
        ready = asyncio.ensure_future(self._all_ready.wait())
        waited: set[asyncio.Future[Any]] = {got, children, ready}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            started()
            await asyncio.wait(waited - {ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if got.done() and not children.done():
            logger.info(
                "stopping %d processes on %s; a second one ends them at once", len(self._children), got.result().name
            )
        got.cancel()
        self._stop()
        while not children.done():
            again = asyncio.ensure_future(signalled.get())
            await asyncio.wait({children, again}, return_when=asyncio.FIRST_COMPLETED)
            if again.done():
                logger.warning("second signal: ending all processes at once")
                self._order(HURRY)
                asyncio.get_running_loop().call_later(_KILL_SECONDS, self._kill)
            again.cancel()
        await children
        if self._given_up is not None:
            return self._given_up
        return 1 if any(self._codes) else 0

    async def _keep_all(self) -> None:
        """The first process alone, until it is up: it brings the schema up to date, and what is set wrong is said once."""
        async with asyncio.TaskGroup() as group:
            first = group.create_task(self._keep(1))
            someone = asyncio.ensure_future(self._someone_ready.wait())
            await asyncio.wait({first, someone}, return_when=asyncio.FIRST_COMPLETED)
            someone.cancel()
            if not first.done():
                for number in range(2, self._processes + 1):
                    group.create_task(self._keep(number))

    async def _keep(self, number: int) -> None:
        """Runs one process, again and again, until it ends because it was told to."""
        failures = 0
        while not self._stopping.is_set():
            try:
                child = await self._start(number)
            except OSError as error:
                logger.error("process %d cannot be started, trying again: %s", number, error)
                await self._pause(_LONGEST_PAUSE_SECONDS)
                continue
            code = await child.process.wait()
            self._forget(child)
            if self._stopping.is_set():
                self._codes.append(code)
                return
            if code == 0:
                logger.info("process %d (pid %d) ended in order and stays away", number, child.process.pid)
                return
            if code == _WRONG_SETTINGS and not self._all_ready.is_set():
                self._given_up = code
                self._stop()
                return
            failures = 1 if time.monotonic() - child.began_at > _STEADY_SECONDS else failures + 1
            pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10), _LONGEST_PAUSE_SECONDS)
            logger.error(
                "process %d (pid %d) %s; starting it again in %g s", number, child.process.pid, _end_of(code), pause
            )
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _start(self, number: int) -> _Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            descriptors = [theirs.fileno()]
            options = ["--parent-line", str(theirs.fileno())]
            if self._listener is not None:
                descriptors.append(self._listener.fileno())
                options += ["--listener", str(self._listener.fileno())]
            process = await asyncio.create_subprocess_exec(
                *_tenure(),
                *self._arguments,
                *options,
                env=self._environment_of(number),
                pass_fds=descriptors,
                start_new_session=True,
            )
        child = self._children[number] = _Child(number=number, process=process, line=ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._on_word, child)
        if self._stopping.is_set():
            child.order(DRAIN)
        return child

    def _environment_of(self, number: int) -> dict[str, str]:
        environment = {**self._environment, "TENURE_PROCESSES": "1"}
        if name := environment.get("TENURE_WORKER_ID"):
            environment["TENURE_WORKER_ID"] = f"{name}-{number}"
        return environment

    def _on_word(self, child: _Child) -> None:
        try:
            words = child.line.recv(64)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            asyncio.get_running_loop().remove_reader(child.line.fileno())
        if READY in words:
            logger.info("process %d (pid %d) is up", child.number, child.process.pid)
            self._ready.add(child.number)
            self._someone_ready.set()
            if len(self._ready) == self._processes:
                self._all_ready.set()

    def _forget(self, child: _Child) -> None:
        del self._children[child.number]
        asyncio.get_running_loop().remove_reader(child.line.fileno())
        child.line.close()

    def _stop(self) -> None:
        self._stopping.set()
        # The children have copies, and close them when they stop: ours would take connections that nobody answers.
        self._close_listener()
        self._order(DRAIN)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _order(self, what: bytes) -> None:
        for child in self._children.values():
            child.order(what)

    def _kill(self) -> None:
        for child in self._children.values():
            logger.error("process %d (pid %d) does not end: killing it", child.number, child.process.pid)
            child.process.kill()


def _tenure() -> tuple[str, ...]:
    """The command that runs this same program, also where the working directory has a folder named ``tenure`` in it."""
    from_here = sys.path[0] in {"", os.getcwd()}
    return (sys.executable, *(() if from_here else ("-P",)), "-m", "tenure")


def _end_of(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with {code}"
