"""A caller of the API that writes down every request before it is sent, and every answer, or that there was none."""

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.ledger import Ledger

_TIMEOUT_SECONDS = 15.0
_PAUSE_SECONDS = (0.05, 0.5)
_AGAIN = frozenset({429, 503})
"""What the service itself says is worth repeating; a connection that breaks is the other thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


UNANSWERED = (httpx.TransportError, AttributeError)
"""No answer came. The second is anyio's on uvloop, for a socket that is gone."""

Pick = Callable[[Answer], dict[str, Any]]
"""What of an answer goes into the ledger, besides its status."""


def nothing(_: Answer) -> dict[str, Any]:
    return {}


@dataclass(slots=True)
class Caller:
    """Requests to any of the servers. ``name`` makes its calls' names unique; ``chance`` is its own."""

    name: str
    ledger: Ledger
    servers: Sequence[str]
    client: httpx.AsyncClient
    chance: random.Random
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def once(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        server: int | None = None,
        pick: Pick = nothing,
        **what: Any,
    ) -> Answer | None:
        """Sends it once. None when no answer came: what became of it is then not known. ``what`` goes into the ledger."""
        call = f"{self.name}-{next(self._numbers)}"
        server = self.chance.randrange(len(self.servers)) if server is None else server
        self.ledger.note("asked", call=call, verb=verb, server=server, **what)
        try:
            response = await self.client.request(
                method, self.servers[server] + path, json=json, headers=headers, timeout=_TIMEOUT_SECONDS
            )
            body = response.json() if response.content else None
        except UNANSWERED as error:
            self.ledger.note("unknown", call=call, verb=verb, why=type(error).__name__)
            return None
        answer = Answer(status=response.status_code, body=body, headers=response.headers)
        problem = {"code": body.get("code"), "detail": body.get("detail")} if not answer.ok and body else {}
        self.ledger.note(
            "answered",
            call=call,
            verb=verb,
            status=answer.status,
            retry_after=response.headers.get("retry-after"),
            **problem,
            **(pick(answer) if answer.ok else {}),
        )
        return answer

    async def until_answered(self, verb: str, method: str, path: str, **options: Any) -> Answer:
        """Repeats it, on any server, until an answer comes that is no "come back later". For what may be repeated."""
        pause, longest = _PAUSE_SECONDS
        while True:
            answer = await self.once(verb, method, path, **options)
            if answer is not None and answer.status not in _AGAIN:
                return answer
            await asyncio.sleep(pause * (0.5 + self.chance.random()))
            pause = min(pause * 2, longest)

    def another(self, name: str) -> "Caller":
        """A caller of the same servers with a name and chances of its own."""
        return Caller(
            name=f"{self.name}.{name}",
            ledger=self.ledger,
            servers=self.servers,
            client=self.client,
            chance=random.Random(f"{self.chance.random()}:{name}"),
        )


def new_client() -> httpx.AsyncClient:
    """Connections for any number of callers. (Reading the authorities' certificates, which nobody here needs, takes long.)"""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=20)
    return httpx.AsyncClient(limits=limits, verify=False, trust_env=False)  # noqa: S501 - there is no TLS here


def job_of(answer: Answer) -> dict[str, Any]:
    """For an answer that is a job."""
    return {
        "job": answer.body["id"],
        "state": answer.body["state"],
        "version": answer.body["version"],
        "replayed": answer.headers.get("idempotent-replayed") == "true",
    }


def jobs_of(answer: Answer) -> dict[str, Any]:
    """For the answer to a batch."""
    return {"jobs": [item["job"]["id"] for item in answer.body["items"]]}


def receipt_of(answer: Answer) -> dict[str, Any]:
    """For the receipt of a cancellation."""
    return {name: answer.body[name] for name in ("outcome", "state", "version")}
