"""Real processes: services and workers as an operator starts them, HTTP as a submitter speaks it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import until

APP = "tests.story.handlers:jobs"
ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Process:
    """One process that a story started; ended with the story at the latest."""

    popen: "subprocess.Popen[bytes]"
    log: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def exit_code(self, *, timeout_seconds: float = 30.0) -> int:
        await until(lambda: self.popen.poll() is not None, timeout_seconds=timeout_seconds, what=f"exit of {self.log}")
        return int(self.popen.returncode)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass(slots=True)
class Stage:
    """Where a story plays: a database, a folder, and what was started."""

    database_url: str
    folder: Path
    processes: list[Process] = field(default_factory=list)

    def start(self, *arguments: str, **settings: str) -> Process:
        """Starts ``tenure <arguments>`` with these settings (names without their prefix)."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
            "TENURE_DATABASE_URL": self.database_url,
            "TENURE_DATA_DIR": str(self.folder / "data"),
            "TENURE_APP": APP,
            "TENURE_LEASE_SECONDS": "2",
            "TENURE_REAP_SECONDS": "0.2",
            "TENURE_WORKER_POLL_SECONDS": "0.2",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.folder)]),
            "NO_COLOR": "1",
            **{f"TENURE_{name}": value for name, value in settings.items()},
        }
        log = self.folder / f"{len(self.processes)}-{arguments[0]}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tenure", *arguments],
                env=environment,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        process = Process(popen=popen, log=log)
        self.processes.append(process)
        return process

    async def serve(self, *arguments: str, ready: bool = True, **settings: str) -> Process:
        """A service on a free port, ready unless told otherwise."""
        port = free_port()
        process = self.start("serve", *arguments, PORT=str(port), **settings)
        process.url = f"http://127.0.0.1:{port}"
        path = "/readyz" if ready else "/healthz"
        await until(lambda: answers(process, path), timeout_seconds=30, what=f"{path} of {process.log}")
        return process

    def ledger(self) -> Mapping[str, list[list[str]]]:
        """What the handlers wrote down: facts by name, each with job, attempt and process."""
        facts: dict[str, list[list[str]]] = {}
        for file in self.folder.glob("*.ledger"):
            for line in file.read_text().splitlines():
                what, *rest = line.split(" ")
                facts.setdefault(what, []).append(rest)
        return facts

    def starts(self) -> Counter[str]:
        """How often each job was started."""
        return Counter(job for job, _, _ in self.ledger().get("started", []))

    def payload(self, **fields: Any) -> dict[str, Any]:
        return {"ledger": str(self.folder), **fields}

    def go(self) -> None:
        """Lets the handlers that hold go on."""
        (self.folder / "go").touch()

    async def end(self) -> None:
        for process in self.processes:
            if process.popen.poll() is None:
                process.send(signal.SIGCONT)
                process.send(signal.SIGKILL)
        for process in self.processes:
            await process.exit_code()


async def answers(process: Process, path: str) -> bool:
    """Whether the service answers 200 there. Fails at once when its process has ended."""
    if process.popen.poll() is not None:
        raise AssertionError(f"ended with {process.popen.returncode}:\n{process.output()}")
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(process.url + path, timeout=2)).status_code == 200
    except httpx.TransportError:
        return False


@dataclass(slots=True)
class Submitter:
    """A caller of the API."""

    client: httpx.AsyncClient

    async def enqueue(self, kind: str, payload: Any, **fields: Any) -> dict[str, Any]:
        answer = await self.client.post("/jobs", json={"kind": kind, "payload": payload, **fields})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def job(self, job_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/jobs/{job_id}/events")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    async def types(self, job_id: str) -> list[str]:
        return [event["type"] for event in await self.events(job_id)]

    async def in_state(self, job_id: str, *states: str, timeout_seconds: float = 20.0) -> dict[str, Any]:
        """Waits until the job is in one of the states."""

        async def there() -> dict[str, Any] | None:
            job = await self.job(job_id)
            return job if job["state"] in states else None

        return dict(await until(there, timeout_seconds=timeout_seconds, what=f"{job_id} in {states}"))


@asynccontextmanager
async def submitter(url: str) -> AsyncIterator[Submitter]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield Submitter(client)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task})
