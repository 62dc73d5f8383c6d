"""Processes that a measurement starts: each leads a session of its own, and is ended with all that it started."""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

_STOP_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start: arguments, and variables that go over this process's own."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class ChildFailed(Exception):
    """A process that was started ended badly; the message has the last lines of its log."""


def _environment(command: Command) -> dict[str, str]:
    """This process's variables but for Tenure's own: no setting of whoever measures gets into what is measured."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return {**inherited, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **command.environment}


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-12:])


async def _start(command: Command, log: Path, *, stdout: int | None = None) -> Process:
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *command.arguments,
            env=_environment(command),
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output if stdout is None else stdout,
            stderr=output,
            start_new_session=True,
        )


@asynccontextmanager
async def running(commands: Sequence[Command], folder: Path) -> AsyncIterator[list[Process]]:
    """Starts them all at once; ends them, in order if they let us. Their output goes to files in ``folder``."""
    processes: list[Process] = []
    try:
        for number, command in enumerate(commands):
            processes.append(await _start(command, folder / f"{Path(command.arguments[-1]).name}-{number}.log"))
        yield processes
    finally:
        await asyncio.gather(*(_end(process) for process in processes))


async def _end(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind


def refuse_dead(processes: Sequence[Process], folder: Path) -> None:
    """Raises ChildFailed when one of them has ended, which none should."""
    for process in processes:
        if process.returncode is not None:
            logs = "\n".join(_tail(log) for log in sorted(folder.glob("*.log")))
            raise ChildFailed(f"a process ended with {process.returncode} while it was measured:\n{logs}")


async def answer(command: Command, folder: Path, *, timeout_seconds: float = 900.0) -> dict[str, Any]:
    """Runs a command to its end; its last line of output is JSON. Raises ChildFailed."""
    log = folder / "commands.log"
    process = await _start(command, log, stdout=PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_seconds)
    finally:
        await _end(process)
    lines = output.decode().splitlines()
    if process.returncode or not lines:
        raise ChildFailed(f"{' '.join(command.arguments)} ended with {process.returncode}:\n{_tail(log)}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
