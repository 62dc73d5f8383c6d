"""examples/handlers.py, on a real worker; the services that it calls are small, and really listen."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.handlers import jobs
from tenure.jobs.model import ErrorKind, Job, State
from tenure.store.database import Database
from tests.factories import queued, read
from tests.waiting import until
from tests.worker.running import settled_as, working


@dataclass(slots=True)
class Providers:
    """Somebody else's model and mail services: they remember keys, and answer what a test prepares."""

    prepared: list[Response] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    mails: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    async def summarize(self, request: Request) -> Response:
        self.prompts.append((await request.json())["prompt"])
        return self.prepared.pop(0) if self.prepared else JSONResponse({"text": "short", "model": "m1"})

    async def send(self, request: Request) -> Response:
        self.calls += 1
        key = request.headers["Idempotency-Key"]
        message = self.mails.setdefault(key, f"message-{len(self.mails)}")
        return self.prepared.pop(0) if self.prepared else JSONResponse({"id": message})


@pytest.fixture
async def providers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Providers]:
    made = Providers()
    routes = [
        Route("/summaries", made.summarize, methods=["POST"]),
        Route("/mails", made.send, methods=["POST"]),
    ]
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve([listening]))
    await until(lambda: server.started)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setenv("AI_URL", f"{url}/summaries")
    monkeypatch.setenv("MAIL_URL", f"{url}/mails")
    yield made
    server.should_exit = True
    await serving
    listening.close()


async def summary(database: Database, **payload: Any) -> Job:
    return await queued(database, kind="ai.summary", queue="ai", payload=orjson.dumps(payload).decode())


async def test_a_summary_is_what_the_model_says(database: Database, providers: Providers) -> None:
    job = await summary(database, text="a long text", max_words=50)
    async with working(database, jobs):
        done = await settled_as(database, job)
    assert orjson.loads(done.result or "null") == {"text": "short", "model": "m1"}
    assert providers.prompts == ["Summarize in 50 words:\na long text"]


async def test_a_model_that_says_later_is_asked_later_and_not_before(database: Database, providers: Providers) -> None:
    providers.prepared = [JSONResponse({}, 429, {"Retry-After": "3600"})]
    job = await summary(database, text="a long text")
    async with working(database, jobs):
        await until(lambda: has_error(database, job))
        waiting = await read(database, job)
    assert waiting.state is State.QUEUED
    assert waiting.last_error is not None
    assert waiting.last_error.kind is ErrorKind.TRANSIENT
    assert (waiting.available_at - waiting.created_at).total_seconds() > 3_590
    assert len(providers.prompts) == 1


@pytest.mark.parametrize(
    "answer", [JSONResponse({"refused": True}), JSONResponse({"error": "no such model"}, 404)], ids=["refused", "404"]
)
async def test_what_will_never_work_fails_at_once(database: Database, providers: Providers, answer: Response) -> None:
    providers.prepared = [answer]
    job = await summary(database, text="a long text")
    async with working(database, jobs):
        failed = await settled_as(database, job)
    assert (failed.state, failed.attempts) == (State.FAILED, 1)
    assert len(providers.prompts) == 1


async def test_a_mail_that_is_attempted_twice_is_sent_once(database: Database, providers: Providers) -> None:
    providers.prepared = [JSONResponse({}, 503, {"Retry-After": "0"})]
    payload = orjson.dumps({"to": "ann@example.org", "template": "welcome"}).decode()
    job = await queued(database, kind="mail.send", queue="mail", payload=payload)
    async with working(database, jobs):
        done = await settled_as(database, job)
    assert (done.state, done.attempts, providers.calls) == (State.SUCCEEDED, 2, 2)
    assert providers.mails == {str(job.id): "message-0"}
    assert orjson.loads(done.result or "null") == {"message_id": "message-0"}


async def has_error(database: Database, job: Job) -> bool:
    return (await read(database, job)).last_error is not None
