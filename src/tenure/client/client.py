"""The client: each method is one operation of the API, named as there, and answers its JSON as Python values."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self
from uuid import uuid4

import httpx

from tenure.client.transport import ServiceUnreachable, Transport, error_of

Json = dict[str, Any]

_TERMINAL_STATES = frozenset({"succeeded", "failed", "dead", "canceled"})
_QUIET_SECONDS = 45.0
"""The service sends a comment at least every fifteen seconds: three missed ones mean that the connection is dead."""
_RETRIES = 3
_PAUSE_SECONDS = 0.3


class Client:
    """Speaks to one service. Use it as a context manager, or close it.

    Every method raises the server's own errors (`tenure.errors`) and ServiceUnreachable.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080") -> None:
        self._transport = Transport(url)

    @property
    def url(self) -> str:
        """The service that is asked."""
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def enqueue(self, kind: str, payload: Any = None, *, wait_seconds: float = 0.0, **fields: Any) -> Json:
        """Accepts a job; ``fields`` are those of ``POST /jobs``.

        Carries an idempotency key, its own if none is given: when the answer is lost, asking again is safe, and it does.
        """
        key = fields.pop("idempotency_key", None) or str(uuid4())
        body = {"kind": kind, "payload": payload, **fields}
        for left in reversed(range(_RETRIES)):
            try:
                answer = self._transport.request(
                    "POST", "/jobs", json=body, headers={"Idempotency-Key": key}, wait_seconds=wait_seconds
                )
                return dict(answer.json())
            except ServiceUnreachable:
                if not left:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError("not reached")

    def get(self, job_id: str, *, wait_seconds: float = 0.0) -> Json:
        """The job; with ``wait_seconds`` (≤ 60) once it has finished, if it does by then."""
        return dict(self._transport.request("GET", f"/jobs/{job_id}", wait_seconds=wait_seconds).json())

    def list(self, *, path: str = "/jobs", limit: int | None = None, cursor: str | None = None, **filters: Any) -> Json:
        """One page: ``items`` and ``next_cursor``. A filter takes one value or several."""
        params = {"limit": limit, "cursor": cursor, **filters}
        return dict(self._transport.request("GET", path, params=params).json())

    def dead(self, **filters: Any) -> Json:
        """One page of dead letters."""
        return self.list(path="/dead", **filters)

    def events(self, job_id: str) -> Sequence[Json]:
        """The job's history so far."""
        return list(self._transport.request("GET", f"/jobs/{job_id}/events").json()["items"])

    def follow(self, job_id: str) -> Iterator[tuple[str, Json]]:
        """Events (and ``progress``) as they happen, each as (type, data), until the job has finished.

        Resumes by itself where it was when the connection is lost; gives up after a few times without any news.
        """
        last_id, failures = "", 0
        while True:
            try:
                for event_id, kind, data in self._stream(job_id, last_id):
                    failures = 0
                    last_id = event_id or last_id
                    yield kind, data
            except httpx.TransportError as error:
                if failures >= _RETRIES:
                    raise ServiceUnreachable(f"lost the connection to {self._transport.url}") from error
            # The stream ends when the job has finished, and when the service stops: only the job itself can tell.
            if self.get(job_id)["state"] in _TERMINAL_STATES:
                return
            failures += 1
            if failures > _RETRIES:
                raise ServiceUnreachable(f"{self._transport.url} ends the stream of events again and again")
            time.sleep(_PAUSE_SECONDS)

    def cancel(self, job_id: str, *, wait_seconds: float = 0.0, **fields: Any) -> Json:
        """Asks for cancellation; the receipt says what is true so far."""
        body = {name: value for name, value in fields.items() if value is not None}
        return dict(
            self._transport.request("POST", f"/jobs/{job_id}/cancel", json=body, wait_seconds=wait_seconds).json()
        )

    def retry(self, job_id: str, **fields: Any) -> Json:
        """Puts a dead or failed job back; answers the job."""
        body = {name: value for name, value in fields.items() if value is not None}
        return dict(self._transport.request("POST", f"/jobs/{job_id}/retry", json=body).json())

    def artifacts(self, job_id: str) -> Sequence[Json]:
        """What the job left for its submitter."""
        return list(self._transport.request("GET", f"/jobs/{job_id}/artifacts").json()["items"])

    def download(self, job_id: str, name: str) -> Iterator[bytes]:
        """An artifact, chunk by chunk."""
        path = f"/jobs/{job_id}/artifacts/{name}"
        with self._transport.stream(path, headers={}, read_timeout_seconds=60.0) as answer:
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            yield from answer.iter_bytes()

    def _stream(self, job_id: str, last_id: str) -> Iterator[tuple[str, str, Json]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        path = f"/jobs/{job_id}/events"
        with self._transport.stream(path, headers=headers, read_timeout_seconds=_QUIET_SECONDS) as answer:
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(":")
                if line == "" and "data" in fields:
                    yield fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"])
                    fields = {}
                elif name in {"id", "event", "data"}:
                    fields[name] = value.removeprefix(" ")
