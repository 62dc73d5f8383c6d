"""Answers as bytes: JSON by orjson, problems by one function."""

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from tenure.errors import MethodNotAllowed, Overloaded, TenureError, Unavailable
from tenure.wire.json import dumps
from tenure.wire.problems import MEDIA_TYPE, problem_of

REVALIDATE = {"Cache-Control": "private, no-cache"}
"""For what has an ETag: keep it if you like, but ask each time."""


class JsonAnswer(Response):
    """A JSON body."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code=status, headers=headers)

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dumps(content)


def problem_answer(error: TenureError, scope: Scope) -> Response:
    """The problem document, with the headers that belong to its status."""
    headers: dict[str, str] = {}
    if isinstance(error, Overloaded | Unavailable):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allow
    if error.status == 408:
        headers["Connection"] = "close"  # what follows on this connection would be the rest of that body
    problem = problem_of(error, instance=scope.get("path"), request_id=scope.get("state", {}).get("request_id"))
    return Response(dumps(problem), status_code=error.status, media_type=MEDIA_TYPE, headers=headers)
