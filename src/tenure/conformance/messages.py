"""HTTP/1.1 messages as bytes with known ends, and what a worker's request and its answer say about leases."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httptools

_BATCHES = {"/leases/heartbeat": "leases", "/leases/settle": "outcomes"}
_VERBS = frozenset({"heartbeat", "complete", "fail", "release", "snooze"})
_NOT_THE_OUTCOME = frozenset({"job_id", "lease_token", "outcome"})


class Message:
    """One request or answer, fed until ``complete``. Pipelined requests are not understood: no worker sends them."""

    def __init__(self, *, is_request: bool) -> None:
        self._parser: Any = httptools.HttpRequestParser(self) if is_request else httptools.HttpResponseParser(self)
        self._is_request = is_request
        self._has_head = False
        self.raw = b""
        self.body = b""
        self.target = ""
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Takes more bytes, or (b"") the end of the connection. Raises ValueError for what is not HTTP."""
        self.raw += data
        if not data:
            # An answer without a length ends with its connection.
            self.complete = self._has_head and not self._is_request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ValueError(str(error)) from error

    @property
    def method(self) -> str:
        return str(self._parser.get_method().decode())

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    @property
    def keeps_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    def json(self) -> Any:
        """The body as JSON; None for what is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    # What httptools calls.

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if not self._is_request and self.status < 200:
            self._has_head = False
            return
        self.complete = True


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request and what became of it. ``heard``: the answer was handed to the worker. Times are the event loop's."""

    method: str
    path: str
    asked: Any
    sent_at: float
    status: int | None = None
    answer: Any = None
    answered_at: float | None = None
    heard: bool = False

    @property
    def is_claim(self) -> bool:
        return self.path == "/leases"

    @property
    def granted(self) -> list[dict[str, Any]]:
        """The leases in the answer to a claim."""
        if not self.is_claim or not isinstance(self.answer, dict):
            return []
        return [lease for lease in self.answer.get("leases", ()) if isinstance(lease, dict)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a worker said about one lease, alone or in a batch, and the answer to that."""

    job_id: str
    token: str
    verb: str
    outcome: Any
    status: int | None
    reason: str | None
    cancel_requested: bool
    sent_at: float
    heard_at: float | None

    @property
    def settles(self) -> bool:
        return self.verb != "heartbeat"

    @property
    def was_told_lost(self) -> bool:
        """The worker heard that the lease is lost."""
        return self.status == 409 and self.heard_at is not None

    @property
    def was_told_to_stop(self) -> bool:
        """The worker heard that cancellation is requested."""
        return self.cancel_requested and self.heard_at is not None


def statements(exchange: Exchange) -> Iterator[Statement]:
    """What the exchange says about leases, in order; nothing for a claim or anything else."""
    asked = exchange.asked if isinstance(exchange.asked, dict) else {}
    answer = exchange.answer if isinstance(exchange.answer, dict) else {}
    head, _, verb = exchange.path.rpartition("/")
    if exchange.path in _BATCHES:
        items = answer.get("items", [])
        for position, item in enumerate(asked.get(_BATCHES[exchange.path], ())):
            reply = items[position] if position < len(items) else {}
            spoken = item.get("outcome", "heartbeat")
            yield _statement(exchange, item.get("job_id"), spoken, item, reply, reply.get("status", exchange.status))
    elif head.startswith("/jobs/") and verb in _VERBS:
        yield _statement(exchange, head.removeprefix("/jobs/"), verb, asked, answer, exchange.status)


def _statement(
    exchange: Exchange, job_id: Any, verb: str, asked: dict[str, Any], answer: dict[str, Any], status: int | None
) -> Statement:
    problem = answer.get("problem") or answer
    return Statement(
        job_id=str(job_id).lower(),
        token=str(asked.get("lease_token")),
        verb=verb,
        outcome={name: value for name, value in asked.items() if name not in _NOT_THE_OUTCOME and value is not None},
        status=status,
        reason=problem.get("reason"),
        cancel_requested=bool(answer.get("cancel_requested")),
        sent_at=exchange.sent_at,
        heard_at=exchange.answered_at if exchange.heard else None,
    )
