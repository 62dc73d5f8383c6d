"""Starting, signalling and waiting for processes of ours: out of a zygote, or each as an operator starts it."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Protocol, Self

import orjson

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Child:
    """A process that was started. ``code`` once it has ended: its exit code, negative for a signal."""

    pid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()


class Launcher(Protocol):
    """A way to run the ``tenure`` command with these arguments, this environment, and its output in this file."""

    async def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child: ...

    def signal(self, child: Child, number: Signals) -> None:
        """Nothing happens when it has ended already."""

    async def close(self) -> None:
        """Kills what still runs."""


class Zygote:
    """Starts out of `tests/chaos/zygote.py`: in milliseconds."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._started: dict[int, asyncio.Future[Child]] = {}
        self._children: dict[int, Child] = {}
        self._numbers = 0

    async def open(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.zygote",
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read(), name="zygote's reports")
        return self

    async def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        self._numbers += 1
        started: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._started[self._numbers] = started
        self._order({"start": self._numbers, "argv": list(arguments), "env": dict(environment), "log": str(log)})
        return await started

    def signal(self, child: Child, number: Signals) -> None:
        if child.alive:
            self._order({"signal": child.pid, "number": int(number)})

    async def close(self) -> None:
        if self._process is None or self._process.stdin is None or self._reading is None:
            return
        self._process.stdin.close()  # it kills what it started, and ends
        await self._process.wait()
        await self._reading

    def _order(self, order: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(order) + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            report = orjson.loads(line)
            if "started" in report:
                child = self._children[report["pid"]] = Child(pid=report["pid"])
                self._started.pop(report["started"]).set_result(child)
            else:
                _end(self._children.pop(report["exited"]), report["code"])
        for started in self._started.values():
            started.set_exception(RuntimeError("the zygote has ended"))
        for child in self._children.values():
            _end(child, -int(SIGKILL))


class Command:
    """Starts `tests/chaos/entry.py` anew each time: imports and all, as an operator would."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[asyncio.subprocess.Process, asyncio.Task[None]]] = {}

    async def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.chaos.entry",
                *arguments,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        child = Child(pid=process.pid)
        self._running[process.pid] = process, asyncio.create_task(self._wait(process, child))
        return child

    def signal(self, child: Child, number: Signals) -> None:
        if child.alive:
            with contextlib.suppress(ProcessLookupError):
                self._running[child.pid][0].send_signal(number)

    async def close(self) -> None:
        for process, _ in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(SIGKILL)
        for _, waiting in list(self._running.values()):
            await waiting

    async def _wait(self, process: asyncio.subprocess.Process, child: Child) -> None:
        code = await process.wait()
        del self._running[process.pid]
        _end(child, code)


def _end(child: Child, code: int) -> None:
    child.code = code
    child.ended.set()
