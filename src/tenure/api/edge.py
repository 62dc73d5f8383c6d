"""What holds for every request and every answer, whoever handles it: its id, its path, and that nothing leaks."""

import logging
import re
import secrets
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.api.answers import problem_answer
from tenure.errors import InternalError, Malformed, TenureError, Unavailable

logger = logging.getLogger(__name__)

_ALWAYS_ANSWERED = frozenset({"/healthz", "/readyz"})
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}\Z")


class Edge:
    """Pure ASGI: gives each request its id (the caller's, if sane), refuses what is not UTF-8 and what is too much at
    once, turns what nobody caught into a 500 that says nothing of the inside, and adds the headers of every answer.

    Health checks are never refused: a busy service is not a dead one.
    """

    def __init__(self, app: ASGIApp, max_requests: int) -> None:
        self._app = app
        self._max_requests = max_requests
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message, request_id)
            await send(message)

        self._under_way += 1
        try:
            check_text(scope)
            if self._under_way > self._max_requests and scope["path"] not in _ALWAYS_ANSWERED:
                raise Unavailable("too many requests are under way here; come back, or ask another service")
            await self._app(scope, receive, send_with_headers)
        except TenureError as error:
            if started:
                logger.warning("request %s broke off: %s", request_id, error)
                return  # unfinished, so the server cuts the connection: half an answer must not look whole
            await problem_answer(error, scope)(scope, receive, send_with_headers)
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if started:
                return
            fault = InternalError("this is a fault of the service; its log has the request id")
            await problem_answer(fault, scope)(scope, receive, send_with_headers)
        finally:
            self._under_way -= 1


def check_text(scope: Scope) -> None:
    """Raises Malformed for a path or a query that is not UTF-8, or holds NUL."""
    for name, raw in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if b"%" not in raw and raw.isascii():
            continue
        decoded = unquote_to_bytes(raw.partition(b"?")[0] if name == "path" else raw)
        if b"\x00" in decoded:
            raise Malformed(f"the {name} contains NUL")
        try:
            decoded.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"the {name} is not UTF-8") from None


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.match(value):
            return str(value, "ascii")
    return secrets.token_hex(12)


def _add_headers(message: Message, request_id: str) -> None:
    headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
    present = {name.lower() for name, _ in headers}
    headers.append((b"x-request-id", request_id.encode()))
    headers.append((b"x-content-type-options", b"nosniff"))
    if b"cache-control" not in present:
        headers.append((b"cache-control", b"no-store"))
    message["headers"] = headers
