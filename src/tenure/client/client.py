"""The client: each method is one operation of the API, named as there, and answers its JSON as Python values."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx

from tenure.client.transport import ServiceUnreachable, Transport, error_of, not_tenure
from tenure.errors import NotFound, Unavailable

Json = dict[str, Any]

_TERMINAL_STATES = frozenset({"succeeded", "failed", "dead", "canceled"})
_QUIET_SECONDS = 45.0
"""The service sends a comment at least every fifteen seconds: three missed ones mean that the connection is dead."""
_TRIES = 3
_PAUSE_SECONDS = 0.3
PATIENCE_SECONDS = 30.0
"""Longer than a service takes to be replaced by its next version."""


class Client:
    """Speaks to one service. Use it as a context manager, or close it.

    ``patience_seconds`` is how long `follow` bears with a service that has gone away in the middle. Every method raises
    the server's own errors (`tenure.errors`) and ServiceUnreachable.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._transport = Transport(url)
        self._patience_seconds = patience_seconds

    @property
    def url(self) -> str:
        """The service that is asked."""
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connection."""
        self._transport.close()

    def enqueue(self, kind: str, payload: Any = None, *, wait_seconds: float = 0.0, **fields: Any) -> Json:
        """Accepts a job; ``fields`` are those of ``POST /jobs``.

        Carries an idempotency key, its own if none is given: when the answer is lost, asking again is safe, and it does.
        """
        key = fields.pop("idempotency_key", None) or str(uuid4())
        body = {"kind": kind, "payload": payload, **fields}
        for left in reversed(range(_TRIES)):
            try:
                return self._transport.request(
                    "POST", "/jobs", json=body, headers={"Idempotency-Key": key}, wait_seconds=wait_seconds
                )
            except ServiceUnreachable:
                if not left:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError("not reached")

    def get(self, job_id: str, *, wait_seconds: float = 0.0) -> Json:
        """The job; with ``wait_seconds`` (≤ 60) once it has finished, if it does by then."""
        return self._transport.request("GET", _job(job_id), wait_seconds=wait_seconds)

    def list(self, *, path: str = "/jobs", limit: int | None = None, cursor: str | None = None, **filters: Any) -> Json:
        """One page: ``items`` and ``next_cursor``. A filter takes one value or several."""
        return self._page(path, limit=limit, cursor=cursor, **filters)

    def dead(self, **filters: Any) -> Json:
        """One page of dead letters."""
        return self.list(path="/dead", **filters)

    def events(self, job_id: str) -> Sequence[Json]:
        """The job's history so far, whole."""
        page = self._page(f"{_job(job_id)}/events")
        found = list(page["items"])
        while page["next_cursor"]:
            page = self._page(f"{_job(job_id)}/events", cursor=page["next_cursor"])
            found += page["items"]
        return found

    def follow(self, job_id: str) -> Iterator[tuple[str, Json]]:
        """Events (and ``progress``) as they happen, each as (type, data), until the job has finished.

        Resumes by itself where it was when the connection is lost or the service is replaced; gives up after
        ``patience_seconds`` without any news.
        """
        seen, news_at = 0, None
        while True:
            trouble: Exception
            try:
                for kind, data in self._stream(job_id, after_version=seen):
                    seen, news_at = data.get("version", seen), time.monotonic()
                    yield kind, data
                # The stream ends when the job has finished, and when the service stops: only the job itself can tell.
                job = self.get(job_id)
                if job["state"] in _TERMINAL_STATES and job["version"] <= seen:
                    return
                trouble = ServiceUnreachable(f"{self.url} ends the stream of events again and again")
            except httpx.TransportError as error:
                trouble = self._transport.unreachable(error, waited_seconds=_QUIET_SECONDS)
            except (ServiceUnreachable, Unavailable) as error:
                trouble = error
            if news_at is None or time.monotonic() > news_at + self._patience_seconds:
                raise trouble
            time.sleep(_PAUSE_SECONDS)

    def cancel(self, job_id: str, *, wait_seconds: float = 0.0, **fields: Any) -> Json:
        """Asks for cancellation; the receipt says what is true so far."""
        body = {name: value for name, value in fields.items() if value is not None}
        return self._transport.request("POST", f"{_job(job_id)}/cancel", json=body, wait_seconds=wait_seconds)

    def retry(self, job_id: str, **fields: Any) -> Json:
        """Puts a dead or failed job back; answers the job."""
        body = {name: value for name, value in fields.items() if value is not None}
        return self._transport.request("POST", f"{_job(job_id)}/retry", json=body)

    def artifacts(self, job_id: str) -> Sequence[Json]:
        """What the job left for its submitter."""
        return list(self._page(f"{_job(job_id)}/artifacts")["items"])

    def download(self, job_id: str, name: str) -> Iterator[bytes]:
        """An artifact, chunk by chunk."""
        path = f"{_job(job_id)}/artifacts/{quote(name, safe='')}"
        if name in {"", ".", ".."}:
            raise NotFound(f"{name!r} is no name of an artifact")
        try:
            with self._transport.stream(path, headers={}, read_timeout_seconds=_QUIET_SECONDS) as answer:
                if not answer.is_success:
                    answer.read()
                    raise error_of(answer)
                yield from answer.iter_bytes()
        except httpx.TransportError as error:
            raise self._transport.unreachable(error, waited_seconds=_QUIET_SECONDS) from error

    def _page(self, path: str, **params: Any) -> Json:
        page = self._transport.request("GET", path, params=params)
        if not {"items", "next_cursor"} <= page.keys():
            raise ServiceUnreachable(
                f"{self.url} answered something that is no list of Tenure's: is the address right?"
            )
        return page

    def _stream(self, job_id: str, *, after_version: int) -> Iterator[tuple[str, Json]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after_version)} if after_version else {})}
        path = f"{_job(job_id)}/events"
        with self._transport.stream(path, headers=headers, read_timeout_seconds=_QUIET_SECONDS) as answer:
            if not answer.is_success:
                answer.read()
                raise error_of(answer)
            if answer.status_code != 204 and not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise not_tenure(answer)
            fields: dict[str, str] = {}
            for line in _lines(answer):
                name, _, value = line.partition(":")
                if line == "" and "data" in fields:
                    yield fields.get("event", "message"), json.loads(fields["data"])
                    fields = {}
                elif name in {"event", "data"}:
                    fields[name] = value.removeprefix(" ")


def _lines(answer: httpx.Response) -> Iterator[str]:
    """Lines by LF alone: the stream's texts may hold what Unicode, and so httpx, takes for the end of a line."""
    rest = b""
    for chunk in answer.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode()


def _job(job_id: str) -> str:
    """The job's path. What is no id at all is not asked for: it could name another path."""
    try:
        return f"/jobs/{UUID(str(job_id))}"
    except ValueError:
        raise NotFound(f"there is no job {job_id!r}: a job's id is a UUID") from None
