"""An operation: its route, its documentation, and one example of everything. Routing and OpenAPI are built from these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tenure.api.context import ApiContext, Endpoint
from tenure.api.query import read_query
from tenure.errors import MethodNotAllowed, TenureError
from tenure.wire.jobs import NoQuery
from tenure.wire.reading import Request as WireRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header of a request or an answer."""

    name: str
    description: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What an operation takes. ``examples`` by name; ``ndjson`` when lines of JSON are taken, too."""

    model: type[WireRequest]
    examples: dict[str, Any]
    required: bool = True
    ndjson: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One way in which an operation answers."""

    status: int
    description: str
    model: type[BaseModel] | None = None
    example: Any = None
    media_type: str = "application/json"
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. The endpoint's name is the operation's id; its docstring the description."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    tag: str
    answers: tuple[Answer, ...]
    query: type[WireRequest] = NoQuery
    headers: tuple[Header, ...] = ()
    body: Body | None = None
    problems: tuple[type[TenureError], ...] = field(default=())

    @property
    def operation_id(self) -> str:
        return self.endpoint.__name__


class PathEndpoint:
    """All operations of one path, as an ASGI application: HEAD is GET without a body, OPTIONS tells what there is."""

    def __init__(self, context: ApiContext, operations: Iterable[Operation]) -> None:
        self._context = context
        self._operations = {operation.method: operation for operation in operations}
        methods = {*self._operations, "OPTIONS"} | ({"HEAD"} if "GET" in self._operations else set())
        self._allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self._allow})(scope, receive, send)
            return
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise MethodNotAllowed(f"{method} is not allowed here; allowed: {self._allow}", allow=self._allow)
        request = Request(scope, receive, send)
        if operation.query is NoQuery and scope["query_string"]:
            read_query(request, NoQuery)
        response = await operation.endpoint(self._context, request)
        await response(scope, receive, _without_body(send) if method == "HEAD" else send)


def routes_of(context: ApiContext, operations: Sequence[Operation]) -> list[Route]:
    """One route a path, in the order of the operations."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [
        Route(path, PathEndpoint(context, group), name=group[0].operation_id, include_in_schema=False)
        for path, group in by_path.items()
    ]


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
