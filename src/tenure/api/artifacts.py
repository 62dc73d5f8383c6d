"""The files that a job left: listed, and streamed with ranges."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenure.api import examples
from tenure.api.answers import REVALIDATE, JsonAnswer, problem_answer
from tenure.api.context import ApiContext
from tenure.api.headers import not_modified
from tenure.api.operations import Answer, Header, Operation
from tenure.api.presence import following
from tenure.errors import DatabaseUnavailable, NotFound, RangeNotSatisfiable, Unavailable
from tenure.jobs.ids import JobId
from tenure.store import artifacts, inspect
from tenure.store.artifacts import Artifact
from tenure.wire import render
from tenure.wire.service import ArtifactPage

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")
_UNSAFE = re.compile(r'[^A-Za-z0-9 ._()+=,@!#$&~^-]|"|\\')


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Bytes from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: int
    end: int


async def list_artifacts(context: ApiContext, request: Request) -> Response:
    """Lists the files that the job published, by name; none before it has succeeded."""
    job_id = JobId(request.path_params["job_id"])
    async with context.services.database.connection() as connection:
        found = await artifacts.find(connection, job_id)
        if not found and await inspect.get(connection, job_id, body=False) is None:
            raise NotFound(f"there is no job {job_id}")
    items = [
        {
            "name": artifact.name,
            "bytes": artifact.bytes,
            "rows": artifact.rows,
            "sha256": artifact.sha256,
            "content_type": artifact.content_type,
            "created_at": render.time(artifact.created_at),
        }
        for artifact in found
    ]
    return JsonAnswer({"items": items, "next_cursor": None})


async def get_artifact(context: ApiContext, request: Request) -> Response:
    """Streams one file, whole or one range of it. Its ETag is the SHA-256 of the content."""
    job_id, name = JobId(request.path_params["job_id"]), request.path_params["name"]
    async with context.services.database.connection() as connection:
        found = await artifacts.find(connection, job_id, name=name)
        if not found and await inspect.get(connection, job_id, body=False) is None:
            raise NotFound(f"there is no job {job_id}")
    if not found:
        raise NotFound(f"job {job_id} has no artifact of this name; GET /jobs/{job_id}/artifacts lists what it has")
    store = context.services.artifacts
    if store is None:
        raise Unavailable("this service has no artifact store", retry_after_seconds=60)
    (artifact,) = found
    tag = f'"{artifact.sha256}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": content_disposition(artifact.name),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        **REVALIDATE,
    }
    if artifact.created_at is not None:
        headers["Last-Modified"] = format_datetime(artifact.created_at.replace(microsecond=0), usegmt=True)
    if not_modified(request, tag):
        return Response(status_code=304, headers=headers)
    try:
        wanted = _wanted(request, artifact, tag)
    except RangeNotSatisfiable as refusal:
        answer = problem_answer(refusal, request.scope)
        answer.headers["Content-Range"] = f"bytes */{artifact.bytes}"
        return answer
    part = wanted or ByteRange(start=0, end=artifact.bytes)
    headers["Content-Length"] = str(part.end - part.start)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{artifact.bytes}"
    status = 200 if wanted is None else 206
    if request.method == "HEAD" or part.end == part.start:
        return Response(status_code=status, headers=headers, media_type=artifact.content_type)
    stream = store.stream(artifact.location, start=part.start, end=part.end)
    # The first piece before the answer begins: a store that is away is then a 503, not half a file.
    first = await anext(stream)
    return FileAnswer(request, first, stream, status=status, headers=headers, media_type=artifact.content_type)


class FileAnswer(Response):
    """Streams until the end, or until nobody takes it any more; then closes what it streamed from."""

    def __init__(
        self,
        request: Request,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        *,
        status: int,
        headers: dict[str, str],
        media_type: str,
    ) -> None:
        super().__init__(status_code=status, headers=headers, media_type=media_type)
        self._request = request
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest), following(self._request) as gone:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for piece in self._rest:
                if gone.is_set():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def content_disposition(name: str) -> str:
    """A download under this name (RFC 6266), whatever characters it has."""
    plain = _UNSAFE.sub("_", name)
    if plain == name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def parse_range(header: str, size: int) -> ByteRange | None:
    """The one range of a Range header; None when it is to be ignored (not bytes, malformed, or several).

    Raises RangeNotSatisfiable when it begins after the end, or asks for the last zero bytes.
    """
    match = _RANGE.match(header.strip().replace(" ", ""))
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        length = int(last)
        if length == 0 or size == 0:
            raise RangeNotSatisfiable(f"the file has {size} bytes, and none of them is in this range")
        return ByteRange(start=max(size - length, 0), end=size)
    start = int(first)
    end = min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable(f"the file has {size} bytes, and this range begins after the last")
    return ByteRange(start=start, end=end)


def _wanted(request: Request, artifact: Artifact, tag: str) -> ByteRange | None:
    header = request.headers.get("range")
    if header is None or not _still_the_same(request.headers.get("if-range"), artifact.created_at, tag):
        return None
    return parse_range(header, artifact.bytes)


def _still_the_same(if_range: str | None, created_at: datetime | None, tag: str) -> bool:
    """Whether the part that the caller has belongs to this file; only a strong tag or the exact date says so."""
    if if_range is None:
        return True
    if if_range.startswith('"'):
        return if_range.strip() == tag
    try:
        return created_at is not None and parsedate_to_datetime(if_range) == created_at.replace(microsecond=0)
    except (ValueError, TypeError):
        return False


OPERATIONS = (
    Operation(
        method="GET",
        path="/jobs/{job_id:uuid}/artifacts",
        endpoint=list_artifacts,
        summary="List a job's files",
        tag="artifacts",
        answers=(Answer(status=200, description="The files.", model=ArtifactPage, example=examples.ARTIFACTS),),
        problems=(NotFound, DatabaseUnavailable),
    ),
    Operation(
        method="GET",
        path="/jobs/{job_id:uuid}/artifacts/{name}",
        endpoint=get_artifact,
        summary="Download a file",
        tag="artifacts",
        headers=(
            Header(name="Range", description="one range of bytes", example="bytes=0-1023"),
            Header(name="If-Range", description="the ETag that the range belongs to", example=f'"{examples.SHA256}"'),
            Header(name="If-None-Match", description="the ETag that you have", example=f'"{examples.SHA256}"'),
        ),
        answers=(
            Answer(
                status=200,
                description="The file.",
                media_type="application/octet-stream",
                example="order,total\n4711,12.50\n",
                headers=(
                    Header(name="ETag", description="SHA-256 of the content", example=f'"{examples.SHA256}"'),
                    Header(
                        name="Content-Disposition", description="its name", example='attachment; filename="orders.csv"'
                    ),
                ),
            ),
            Answer(
                status=206,
                description="The range.",
                media_type="application/octet-stream",
                example="order,total\n",
                headers=(Header(name="Content-Range", description="which bytes", example="bytes 0-11/23"),),
            ),
            Answer(status=304, description="It is as you have it."),
        ),
        problems=(NotFound, RangeNotSatisfiable, DatabaseUnavailable),
    ),
)
