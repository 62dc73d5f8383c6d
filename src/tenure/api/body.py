"""Reading a request's body: bounded in bytes and in time before it is parsed, and refused with the way to mend it."""

import asyncio
import re
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Message

from tenure.errors import BodyTooLarge, Malformed, RequestTimeout, UnsupportedMediaType
from tenure.wire import json
from tenure.wire.reading import Request as WireRequest
from tenure.wire.reading import read

NDJSON = "application/x-ndjson"

_JSON = re.compile(r"application/(?:[a-z0-9.!#$&^_-]+\+)?json\Z")
_IN_A_THREAD_BYTES = 262_144
"""Above this, parsing takes longer than other requests should wait for."""

ModelT = TypeVar("ModelT", bound=WireRequest)


SMALL_BODY_BYTES = 65_536
"""For bodies that carry a few fields."""


async def read_model(request: Request, model: type[ModelT], *, limit: int, optional: bool = False) -> ModelT:
    """The body as this model. ``optional``: it may be absent, for all its fields are.

    Raises as `read_bytes`, `wire.json.parse` and `wire.reading.read` do.
    """
    model_read, _ = await read_model_and_value(request, model, limit=limit, optional=optional)
    return model_read


async def read_model_and_value(
    request: Request, model: type[ModelT], *, limit: int, optional: bool = False
) -> tuple[ModelT, Any]:
    """The body as this model, and as it was sent."""
    data = await read_bytes(request, limit=limit, optional=optional)
    if len(data) > _IN_A_THREAD_BYTES:
        return await asyncio.to_thread(_parsed, data, model)
    return _parsed(data, model)


def _parsed(data: bytes, model: type[ModelT]) -> tuple[ModelT, Any]:
    value = json.parse(data) if data else {}
    return read(model, value), value


async def read_bytes(request: Request, *, limit: int, optional: bool = False, ndjson: bool = False) -> bytes:
    """The body, at most ``limit`` bytes of it, whether its length was announced or not.

    Raises UnsupportedMediaType, BodyTooLarge (before it is read whole), RequestTimeout, Malformed (empty, cut off).
    """
    headers = request.headers
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", ""}:
        raise UnsupportedMediaType(f"Content-Encoding {encoding!r} is not taken; send the body uncompressed")
    announced = headers.get("content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    data = await _received(request, limit)
    if not data:
        if optional:
            return data
        raise Malformed("the body is empty; send a JSON object")
    _check_media_type(headers.get("content-type"), ndjson=ndjson)
    return data


def media_type(request: Request) -> str:
    """The content-type without its parameters, in lower case; empty when there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _received(request: Request, limit: int) -> bytes:
    seconds = request.app.state.body_timeout_seconds
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message: Message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Malformed("the connection was closed before the body had arrived")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {seconds:g} seconds") from None


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {limit:,} bytes", limit_bytes=limit)


def _check_media_type(header: str | None, *, ndjson: bool) -> None:
    allowed = f"application/json or {NDJSON}" if ndjson else "application/json"
    if header is None:
        raise UnsupportedMediaType(f"the body has no content-type; send `content-type: {allowed}`")
    kind, *parameters = (part.strip().lower() for part in header.split(";"))
    if not _JSON.match(kind) and not (ndjson and kind == NDJSON):
        raise UnsupportedMediaType(f"the content-type {kind!r} is not taken here; send `content-type: {allowed}`")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            raise UnsupportedMediaType("JSON is UTF-8 (RFC 8259); send no other charset")
