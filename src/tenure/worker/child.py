"""The child's side of `process.py`: ``python -m tenure.worker.child <socket> <parent>``, started by a worker only."""

import asyncio
import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import reduce
from types import FrameType
from typing import Any, BinaryIO

import orjson
from pydantic import TypeAdapter

from tenure.errors import CompletionUnavailable, ConfigurationError
from tenure.jobs.model import Job
from tenure.store.artifacts import Artifact
from tenure.worker.classify import frames_of
from tenure.worker.context import JobContext
from tenure.worker.outcome import Ended, Raised, Returned, raised, returned
from tenure.worker.signature import read_signature
from tenure.worker.spec import HandlerSpec, Mode
from tenure.worker.stops import StopReason, Stops

_JOB = TypeAdapter(Job)
_PR_SET_PDEATHSIG = 1


class Terminated(SystemExit):
    """Raised in the handler by SIGTERM, so that its `finally` blocks run."""


class ParentLink:
    """The handler's way back to the worker."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one line; whole, from whichever thread."""
        with self._lock:
            self._channel.sendall(orjson.dumps(message) + b"\n")

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        self.send({"progress": [fraction, message]})

    def completion(self, result: Any, artifacts: Sequence[Artifact]) -> AbstractAsyncContextManager[Any]:
        raise CompletionUnavailable(
            "context.completion() is for handlers on the worker's event loop; this one runs in a process of its own"
        )


class ChildStops(Stops):
    """As in the worker; which also hears of holds, lest it sends signals meanwhile."""

    def __init__(self, link: ParentLink) -> None:
        super().__init__()
        self._link = link

    def hold(self) -> None:
        super().hold()
        self._link.send({"held": True})

    def unhold(self) -> None:
        super().unhold()
        if self.may_interrupt:
            self._link.send({"held": False})


def main(arguments: Sequence[str]) -> int:
    """Runs one handler and reports how it ended."""
    descriptor, parent = int(arguments[0]), int(arguments[1])
    os.set_inheritable(descriptor, False)
    _die_with(parent)
    channel = socket.socket(fileno=descriptor)
    lines = channel.makefile("rb")
    task = orjson.loads(lines.readline() or b"null")
    if task is None:
        return 1
    sys.path[:] = task["path"]
    link = ParentLink(channel)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        ended = _run(task, link, lines)
    except Terminated as error:
        ended = raised(error, stopping=True)
    except BaseException as error:
        ended = raised(error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link.send(_message(ended))
    return 0


def _run(task: dict[str, Any], link: ParentLink, lines: BinaryIO) -> Ended:
    job = _JOB.validate_json(task["job"])
    spec = _spec(task)
    stops = ChildStops(link)
    context = JobContext(job=job, attempt_version=job.version, stops=stops, link=link)
    arguments = (context, spec.validate(job.payload or "null")) if spec.takes_payload else (context,)
    if spec.is_async:
        return asyncio.run(_run_async(spec, arguments, stops, lines, task["max_result_bytes"]))
    _listen(lines, stops, None)
    try:
        value = spec.function(*arguments)
    except BaseException as error:
        return _raised(error)
    return returned(spec, value, max_result_bytes=task["max_result_bytes"])


async def _run_async(
    spec: HandlerSpec, arguments: tuple[Any, ...], stops: Stops, lines: BinaryIO, max_result_bytes: int
) -> Ended:
    loop = asyncio.get_running_loop()

    async def call() -> Ended:
        try:
            value = await spec.function(*arguments)
        except asyncio.CancelledError as error:
            return raised(error, stopping=stops.requested)
        except BaseException as error:
            return _raised(error)
        return returned(spec, value, max_result_bytes=max_result_bytes)

    handler = asyncio.create_task(call(), name=f"tenure-{spec.kind}")

    def interrupt() -> None:
        handler.cancel()

    stops.interrupt = interrupt
    _listen(lines, stops, loop)
    try:
        return await handler
    except asyncio.CancelledError as error:
        if not handler.cancelled():
            raise
        return raised(error, stopping=stops.requested)


def _raised(error: BaseException) -> Raised:
    if not isinstance(error, Terminated):
        sys.stderr.write(frames_of(error))
    return raised(error, stopping=isinstance(error, Terminated))


def _spec(task: dict[str, Any]) -> HandlerSpec:
    what = f"handler for {task['kind']!r}"
    function: Any = reduce(getattr, task["name"].split("."), importlib.import_module(task["module"]))
    if not callable(function):
        raise ConfigurationError(f"{what}: {task['module']}.{task['name']} is not a function in the child process")
    signature = read_signature(function, what=what, process=False)
    return HandlerSpec(
        kind=task["kind"],
        queue="",
        function=function,
        mode=Mode.PROCESS,
        takes_payload=signature.takes_payload,
        is_async=signature.is_async,
        payload_adapter=signature.payload_adapter,
    )


def _message(ended: Ended) -> dict[str, Any]:
    return {"returned": ended.result} if isinstance(ended, Returned) else {"raised": ended}


def _listen(lines: BinaryIO, stops: Stops, loop: asyncio.AbstractEventLoop | None) -> None:
    """Hears the worker in a thread: reasons to stop, and its end, with which this process group ends."""

    def body() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                reason = StopReason(orjson.loads(line)["stop"])
                if loop is None:
                    stops.request(reason)
                else:
                    with contextlib.suppress(RuntimeError):  # the handler has ended
                        loop.call_soon_threadsafe(stops.request, reason)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=body, name="tenure-parent", daemon=True).start()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated(128 + signal.SIGTERM)


def _die_with(parent: int) -> None:
    """The end of the socket tells of the parent's end, but not a child that never lets go of the interpreter's lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
