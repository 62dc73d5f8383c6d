"""A job's history: as a page, or live as server-sent events."""

import asyncio
import logging
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.context import ApiContext
from tenure.api.operations import Answer, Header, Operation
from tenure.api.presence import first_of, following
from tenure.api.query import read_query, read_version_cursor, version_cursor
from tenure.api.watcher import Watch
from tenure.errors import DatabaseUnavailable, InvalidInput, NotFound
from tenure.jobs.ids import JobId
from tenure.jobs.model import TERMINAL_STATES, Event, Job, Progress
from tenure.store import inspect
from tenure.wire import jobs as wire
from tenure.wire import render
from tenure.wire.json import dumps

logger = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"

_KEEP_ALIVE_SECONDS = 15.0
"""Below the idle time at which proxies cut a connection (often 30 or 60 seconds)."""

_RECONNECT_MILLISECONDS = 1_000

_STREAMED_AT_ONCE = 1_000
"""Events read at a time for a stream: a job retried for years must not be held in memory whole."""


async def list_events(context: ApiContext, request: Request) -> Response:
    """Lists what happened to a job, oldest first.

    With `Accept: text/event-stream` it follows the job live: each event has its version as `id`, its type as `event` and
    itself as `data`; `progress` events have no id. A `Last-Event-ID` resumes after it. The stream ends with the job; 204
    says that nothing more will come.
    """
    query = read_query(request, wire.EventsQuery)
    job_id = JobId(request.path_params["job_id"])
    live = EVENT_STREAM in request.headers.get("accept", "")
    after = _last_event_id(request) if live else read_version_cursor(query.cursor)
    async with context.services.database.snapshot() as connection:
        job = await inspect.get(connection, job_id, body=False)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        limit = _STREAMED_AT_ONCE if live else query.limit + 1
        events = await inspect.events(connection, job_id, after_version=after, limit=limit)
    if live:
        if not events and job.state in TERMINAL_STATES:
            return Response(status_code=204)
        return EventStream(context, request, job, events)
    shown = events[: query.limit]
    more = len(events) > query.limit
    return JsonAnswer(
        {
            "items": [render.event(event) for event in shown],
            "next_cursor": version_cursor(shown[-1].version) if more else None,
        }
    )


class EventStream(Response):
    """Server-sent events until the job ends, the caller leaves or the service stops."""

    def __init__(self, context: ApiContext, request: Request, job: Job, events: list[Event]) -> None:
        super().__init__(status_code=200, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})
        # The length is not known, and no proxy may hold events back to fill a buffer.
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"
        self._context = context
        self._request = request
        self._job = job
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async with following(self._request) as gone:
                with self._context.watcher.watching(self._job.id) as watch:
                    await self._follow(watch, gone, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, watch: Watch, gone: asyncio.Event, send: Send) -> None:
        draining = self._context.services.lifecycle.draining
        progress: Progress | None = None
        await _write(send, f"retry: {_RECONNECT_MILLISECONDS}\n\n".encode())
        while True:
            for event in self._events:
                await _write(send, _event_bytes(event))
            if len(self._events) == _STREAMED_AT_ONCE:
                await self._read(watch, after_version=self._events[-1].version)
                continue
            if self._events and self._events[-1].state in TERMINAL_STATES:
                return
            if self._job.progress is not None and self._job.progress != progress:
                progress = self._job.progress
                await _write(send, _progress_bytes(progress))
            seen = self._events[-1].version if self._events else self._job.version
            if not await self._changed(watch, gone, send):
                return
            await self._read(watch, after_version=seen)
            if gone.is_set() or draining.is_set():
                return

    async def _changed(self, watch: Watch, gone: asyncio.Event, send: Send) -> bool:
        """Waits for a change, with a comment now and then to keep the connection; False when it is over."""
        draining = self._context.services.lifecycle.draining
        quiet_since = time.monotonic()
        while not watch.changed.is_set():
            if gone.is_set() or draining.is_set():
                return False
            left = quiet_since + _KEEP_ALIVE_SECONDS - time.monotonic()
            if left <= 0:
                await _write(send, b": keep-alive\n\n")
                quiet_since = time.monotonic()
                continue
            await first_of(watch.changed, gone, draining, timeout_seconds=left)
        watch.changed.clear()
        return True

    async def _read(self, watch: Watch, *, after_version: int) -> None:
        """What is new. During an outage nothing is, and the watch forgets what it saw, to report it once more."""
        self._events = []
        try:
            async with self._context.services.database.snapshot() as connection:
                self._job = await inspect.get(connection, self._job.id, body=False) or self._job
                self._events = await inspect.events(
                    connection, self._job.id, after_version=after_version, limit=_STREAMED_AT_ONCE
                )
        except DatabaseUnavailable as error:
            watch.mark = None
            logger.warning("events of job %s come later: %s", self._job.id, error)


def _event_bytes(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.version, event.type.encode(), dumps(render.event(event)))


def _progress_bytes(progress: Progress) -> bytes:
    shown: dict[str, Any] = {
        "fraction": progress.fraction,
        "message": progress.message,
        "at": render.time(progress.at),
    }
    return b"event: progress\ndata: %s\n\n" % dumps(shown)


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _last_event_id(request: Request) -> int:
    header = request.headers.get("last-event-id", "").strip()
    if not header:
        return 0
    if not (header.isascii() and header.isdigit() and len(header) <= 10 and int(header) <= 2_147_483_647):
        raise InvalidInput.of("Last-Event-ID", "should be the `id` of an event of this job: its version")
    return int(header)


OPERATIONS = (
    Operation(
        method="GET",
        path="/jobs/{job_id:uuid}/events",
        endpoint=list_events,
        summary="Read or follow a job's history",
        tag="jobs",
        query=wire.EventsQuery,
        headers=(
            Header(name="Accept", description="`text/event-stream` follows the job live", example=EVENT_STREAM),
            Header(name="Last-Event-ID", description="with a stream: resume after this event", example="3"),
        ),
        answers=(
            Answer(status=200, description="A page.", model=wire.EventPage, example=examples.EVENT_PAGE),
            Answer(
                status=200,
                description="A page, or the stream of events.",
                media_type=EVENT_STREAM,
                example=examples.EVENT_STREAM,
            ),
            Answer(status=204, description="Of a stream: the job has ended, and nothing more will come."),
        ),
        problems=(NotFound, DatabaseUnavailable),
    ),
)
