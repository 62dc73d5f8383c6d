"""Running a handler in a child process, which can be ended whatever it does.

The child is a fresh interpreter (`tenure.worker.child`), not a fork: nothing of the worker's state, locks or connections
is in it. Parent and child talk in JSON lines over a socket of their own, so the handler's stdout and stderr stay what they
are. The child leads a process group: what it starts is ended with it. When the worker dies, so does the child.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from typing import Any

import orjson
from pydantic import TypeAdapter

from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind, Job
from tenure.worker.outcome import Ended, Raised, Returned, raised
from tenure.worker.spec import HandlerSpec
from tenure.worker.stops import StopReason, Stops

_RAISED = TypeAdapter(Raised)

_LINE_SLACK_BYTES = 1_048_576

ReportProgress = Callable[[float | None, str | None], None]


async def run_in_process(
    spec: HandlerSpec,
    job: Job,
    *,
    stops: Stops,
    report_progress: ReportProgress,
    max_result_bytes: int,
    grace_seconds: float,
) -> Ended:
    """Runs the handler to its end. A child that ends without a word (crash, `os._exit`, kill) is a failure that says how.

    When it should stop, it is asked to; after ``grace_seconds`` it gets SIGTERM, after as many again SIGKILL.
    """
    mine, theirs = socket.socketpair()
    with contextlib.ExitStack() as sockets:
        sockets.enter_context(theirs)
        sockets.callback(mine.close)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tenure.worker.child",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            return raised(error)
        theirs.close()
        # The result is JSON text within a JSON line: every character of it may be escaped.
        reader, writer = await asyncio.open_connection(sock=mine, limit=6 * max_result_bytes + _LINE_SLACK_BYTES)
        child = _Child(process, reader, writer, stops=stops, grace_seconds=grace_seconds)
        try:
            child.send(
                {
                    "module": spec.function.__module__,
                    "name": spec.function.__qualname__,
                    "kind": spec.kind,
                    "job": orjson.dumps(job, default=str).decode(),  # asyncpg has a UUID of its own
                    "max_result_bytes": max_result_bytes,
                    "path": [entry for entry in sys.path if isinstance(entry, str)],
                }
            )
            return await child.attend(report_progress)
        finally:
            await child.close()


class _Child:
    """The child process as its parent sees it."""

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        stops: Stops,
        grace_seconds: float,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._stops = stops
        self._grace_seconds = grace_seconds
        self._interruptible = asyncio.Event()
        self._interruptible.set()
        self._told: set[StopReason] = set()
        self._ending: asyncio.Task[None] | None = None

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line; a child that is gone already shows in its silence."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps(message) + b"\n")

    async def attend(self, report_progress: ReportProgress) -> Ended:
        """Listens until the handler has ended, then until the process has."""
        self._stops.interrupt = self._stop
        self._stops.deliver()
        ended: Ended | None = None
        while ended is None and (line := await self._read()):
            message = orjson.loads(line)
            match next(iter(message)):
                case "progress":
                    report_progress(*message["progress"])
                case "held":
                    self._hold(bool(message["held"]))
                case "returned":
                    ended = Returned(result=message["returned"])
                case "raised":
                    ended = _RAISED.validate_python(message["raised"])
        await self._until_gone()
        return ended or self._silent()

    async def close(self) -> None:
        """Leaves no process behind."""
        self._stops.interrupt = _nothing
        if self._ending is not None:
            self._ending.cancel()
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> bytes:
        try:
            return await self._reader.readline()
        except (OSError, ValueError):  # cut off, or a line beyond all bounds
            return b""

    async def _until_gone(self) -> None:
        """The handler is through: its process ends by itself, or is ended (threads it left may keep it)."""
        try:
            async with asyncio.timeout(max(self._grace_seconds, 0.1)):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _silent(self) -> Raised:
        code = self._process.returncode or 0
        if code < 0:
            with contextlib.suppress(ValueError):
                return self._gone(f"the handler's process was killed by {signal.Signals(-code).name}")
        return self._gone(f"the handler's process ended with exit code {code} before the handler had returned")

    def _gone(self, message: str) -> Raised:
        error = ReportedError(kind=ErrorKind.UNKNOWN, type="ProcessEnded", message=message)
        return Raised(error=error, stopping=self._ending is not None)

    def _hold(self, held: bool) -> None:
        """Only signals wait for the end of a hold. Reasons go across at once: the child knows when to tell its handler."""
        if held and not self._stops.forced and StopReason.LOST not in self._stops:
            self._interruptible.clear()
        else:
            self._interruptible.set()

    def _stop(self) -> None:
        for reason in self._stops.reasons - self._told:
            self.send({"stop": str(reason)})
        self._told |= self._stops.reasons
        if self._stops.forced or StopReason.LOST in self._stops:
            self._interruptible.set()
        if self._stops.forced:
            self._signal(signal.SIGKILL)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name=f"tenure-end-process-{self._process.pid}")

    async def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.sleep(self._grace_seconds)
            await self._interruptible.wait()
            self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def _nothing() -> None:
    pass
