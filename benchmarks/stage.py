"""Where a measurement takes place: a fresh database of the subject's, and a folder for records and logs."""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.processes import answer
from benchmarks.recording import Tally
from benchmarks.server import Server
from benchmarks.subjects import Subject

T = TypeVar("T")

_POLL_SECONDS = 0.02


class TookTooLong(Exception):
    """What was waited for did not come about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A database with the subject's tables and nothing in them, and a folder that only this measurement writes to."""

    server: Server
    subject: Subject
    database_url: str
    folder: Path
    tuned: bool

    async def fill(self, jobs: int) -> None:
        """Puts jobs in, then brings the tables to rest, so that no measurement pays for it."""
        await self.do("fill", f"--jobs={jobs}")
        await self.server.execute("VACUUM ANALYZE", "CHECKPOINT", url=self.database_url)

    async def do(self, action: str, *options: str) -> dict[str, Any]:
        """One action of the subject's script, in a process of its own."""
        command = self.subject.action(action, *options, database_url=self.database_url, tuned=self.tuned)
        return await answer(command, self.folder)

    def tally(self) -> Tally:
        return Tally(self.folder)

    async def value(self, query: str) -> Any:
        return await self.server.value(query, url=self.database_url)


@dataclass(slots=True, kw_only=True)
class Stage:
    """A run's server, and what is known of its subjects."""

    server: Server
    _described: dict[tuple[str, bool], dict[str, Any]] = field(default_factory=dict)
    _templates: dict[tuple[str, bool], str] = field(default_factory=dict)

    @asynccontextmanager
    async def site(self, subject: Subject, *, tuned: bool = False) -> AsyncIterator[Site]:
        """A fresh site, gone after the block. The subject's own installation runs once; every site is a copy of it."""
        folder = Path(tempfile.mkdtemp(prefix="tenure-benchmark-"))
        name = f"{subject.name}_measured"
        try:
            url = await self.server.database(name, template=await self._template(subject, folder, tuned=tuned))
            await self.server.execute("CHECKPOINT")
            yield Site(server=self.server, subject=subject, database_url=url, folder=folder, tuned=tuned)
        finally:
            await self.server.drop(name)
            shutil.rmtree(folder, ignore_errors=True)

    async def describe(self, subject: Subject, *, tuned: bool) -> dict[str, Any]:
        """The subject's versions, its settings, and the query that counts its unfinished jobs."""
        key = (subject.name, tuned)
        if key not in self._described:
            with tempfile.TemporaryDirectory() as folder:
                self._described[key] = await answer(subject.action("describe", tuned=tuned), Path(folder))
        return self._described[key]

    async def _template(self, subject: Subject, folder: Path, *, tuned: bool) -> str:
        key = (subject.name, tuned)
        if key not in self._templates:
            name = f"{subject.name}_{'tuned' if tuned else 'defaults'}"
            url = await self.server.database(name)
            await answer(subject.action("install", database_url=url, tuned=tuned), folder)
            self._templates[key] = name
        return self._templates[key]

    @property
    def facts(self) -> dict[str, Any]:
        """What a reader of the figures should know: the server's settings, versions and settings of the subjects."""
        subjects = {
            name: {"versions": described["versions"], "tuned" if tuned else "defaults": described["settings"]}
            for (name, tuned), described in self._described.items()
        }
        return json.loads(json.dumps({"postgresql": self.server.settings, "subjects": subjects})) or {}


async def until(condition: Callable[[], Awaitable[T]], *, seconds: float, what: str, every: float = _POLL_SECONDS) -> T:
    """Waits for the condition's first true value. Raises TookTooLong."""
    end = time.monotonic() + seconds
    while not (value := await condition()):
        if time.monotonic() > end:
            raise TookTooLong(f"still not so after {seconds:g} s: {what}")
        await asyncio.sleep(every)
    return value
