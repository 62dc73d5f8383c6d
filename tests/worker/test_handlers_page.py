"""docs/handlers.md: its examples, as a reader would save them, on a worker."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from tenure.jobs.model import ErrorKind, Job, State
from tenure.store.database import Database
from tests.factories import queued, read
from tests.waiting import until
from tests.worker.running import settled_as, working

PAGE = Path(__file__).parents[2] / "docs" / "handlers.md"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """All blocks of the page, one after the other, in one file."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "handlers_page_app.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("handlers_page_app")
    del sys.modules["handlers_page_app"]


CASES: list[tuple[str, Any, State, Any]] = [
    ("greet", {"name": "Ann", "times": 2}, State.SUCCEEDED, {"text": "hello Ann, hello Ann"}),
    ("greet", {"name": 7}, State.FAILED, None),
    ("count", [1, 2, 3], State.SUCCEEDED, 6),
    ("render", 3, State.SUCCEEDED, "rendered"),
    ("charge", "ann", State.SUCCEEDED, 120),
    ("charge", "bob", State.FAILED, None),
    ("transfer", "R1", State.SUCCEEDED, "sent"),
    ("publish", "page", State.SUCCEEDED, True),
]


async def test_every_example_does_what_the_page_says(database: Database, app: Any) -> None:
    queues = {spec.kind: spec.queue for spec in app.jobs.kinds()}
    accepted = [
        (await queued(database, kind=kind, queue=queues[kind], payload=orjson.dumps(payload).decode()), state, result)
        for kind, payload, state, result in CASES
    ]
    async with working(database, app.jobs):
        for job, state, result in accepted:
            ended = await settled_as(database, job)
            assert (ended.kind, ended.state) == (job.kind, state)
            assert orjson.loads(ended.result or "null") == result
    assert app.sent == ["R1"]
    assert app.put("page", 1, "an older attempt") is False
    assert app.put("page", 9, "a newer one") is True
    assert set(queues) == {kind for kind, *_ in CASES} | {"book"}


async def test_retry_later_waits_as_long_as_it_asks(database: Database, app: Any) -> None:
    job = await queued(database, kind="charge", payload='"maintenance"')
    async with working(database, app.jobs):

        async def failed() -> Job | None:
            found = await read(database, job)
            return found if found.last_error else None

        found: Job = await until(failed)
    assert found.last_error is not None
    assert (found.state, found.last_error.kind) == (State.QUEUED, ErrorKind.TRANSIENT)
    assert (found.available_at - found.updated_at).total_seconds() >= 600


async def test_a_booking_and_its_job_commit_together(database: Database, app: Any) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE bookings (seat integer UNIQUE, job uuid)")
    try:
        first = await queued(database, kind="book", payload="12")
        second = await queued(database, kind="book", payload="12", max_attempts=1)
        async with working(database, app.jobs):
            ends = [(await settled_as(database, job)).state for job in (first, second)]
        async with database.connection() as connection:
            booked = [row["job"] for row in await connection.fetch("SELECT job FROM bookings")]
    finally:
        async with database.connection() as connection:
            await connection.execute("DROP TABLE bookings")
    assert sorted(ends) == [State.DEAD, State.SUCCEEDED]
    assert booked == [job.id for job, state in zip((first, second), ends, strict=True) if state is State.SUCCEEDED]
