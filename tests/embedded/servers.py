"""Real servers for these tests: other processes that use one, one question to a database, and the end of leftovers."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from tenure.embedded.postmaster import claimed_postmaster, is_server_of

SMALL = {"shared_buffers": "16MB", "max_connections": "20"}
"""Settings for servers that run beside others; fsync stays on."""

CHILD = """
import signal, sys
from pathlib import Path
from tenure.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), settings={"shared_buffers": "16MB", "max_connections": "20"})
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(server.start(), server.postmaster_pid, flush=True)
sys.stdin.readline()
server.stop()
"""


def until(condition: Callable[[], Any], *, timeout: float = 30.0, what: str = "") -> Any:
    """Polls until the condition holds and returns its value. ``timeout`` in seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not so after {timeout} s: {what or condition}"
        time.sleep(0.01)
    return value


def query(url: str, statement: str) -> Any:
    """One statement on a connection of its own; the first value of the first row."""

    async def ask() -> Any:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


@dataclass(slots=True)
class Child:
    """Another process that starts the server on a root and uses it until it is told to leave, or killed."""

    process: "subprocess.Popen[str]"
    url: str = ""
    postmaster_pid: int = 0

    def started(self) -> "Child":
        """Waits until its start has returned."""
        assert self.process.stdout is not None
        self.url, pid = self.process.stdout.readline().split()
        self.postmaster_pid = int(pid)
        return self

    def leave(self) -> None:
        """Has it stop its server and end."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


def end_server(data: Path) -> None:
    """Ends the server that a test has left on a data folder."""
    claimed = claimed_postmaster(data)
    if claimed is not None and is_server_of(claimed.pid, data):
        os.kill(claimed.pid, signal.SIGQUIT)
        until(lambda: not is_server_of(claimed.pid, data), what="a server left by the test has ended")
