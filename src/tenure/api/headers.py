"""Request headers with a meaning here: Prefer, conditional requests, Idempotency-Key, trace context."""

import re
from dataclasses import dataclass

from starlette.requests import Request

from tenure.errors import InvalidInput
from tenure.jobs.model import Job
from tenure.wire.fields import valid_traceparent

MAX_WAIT_SECONDS = 60
"""The longest `Prefer: wait`: beyond it, proxies give up on the connection first."""

_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)
_VERSION_TAG = re.compile(r'(?:W/)?"(\d{1,10})(?:\.\d{1,10})?"\Z')
_ENTITY_TAG = re.compile(r'(?:W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wish to wait, bounded. ``applied`` goes into Preference-Applied."""

    seconds: int

    @property
    def applied(self) -> dict[str, str]:
        return {"Preference-Applied": f"wait={self.seconds}"} if self.seconds else {}


def wait_preferred(request: Request) -> Wait:
    """`Prefer: wait=N` (RFC 7240), at most `MAX_WAIT_SECONDS`; zero when absent. What is not understood is ignored."""
    for header in request.headers.getlist("prefer"):
        if match := _WAIT.search(header):
            return Wait(seconds=min(int(match.group(1)), MAX_WAIT_SECONDS))
    return Wait(seconds=0)


def entity_tag(job: Job) -> str:
    """A job's ETag: its version, and its heartbeats, for progress is read, too."""
    return f'"{job.version}.{job.heartbeats}"'


def not_modified(request: Request, tag: str) -> bool:
    """Whether If-None-Match names this tag (weak comparison), or anything at all."""
    header = ",".join(request.headers.getlist("if-none-match"))
    if header.strip() == "*":
        return True
    return any(match.group(1) == tag.strip('"') for match in _ENTITY_TAG.finditer(header))


def version_expected(request: Request, version: int | None) -> int | None:
    """The version that the caller means, from If-Match or the body; None when it does not say.

    Raises InvalidInput when both are given and differ, or the header is no version.
    """
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return version
    match = _VERSION_TAG.match(header.strip())
    if match is None:
        raise InvalidInput.of("If-Match", 'should be one version, like "3", or an ETag of the job, like "3.0"')
    expected = int(match.group(1))
    if version is not None and version != expected:
        raise InvalidInput.of("/version", f"says {version}, but If-Match says {expected}; give one of them")
    return expected


def idempotency_key(request: Request, in_body: str | None) -> str | None:
    """The key from the header or the body. Raises InvalidInput when they differ, or the header's cannot be one."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return in_body
    if len(given) > 1:
        raise InvalidInput.of("Idempotency-Key", "is given more than once")
    try:
        key = given[0].encode("latin-1").decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidInput.of("Idempotency-Key", "should be UTF-8") from None
    if not 1 <= len(key) <= 255 or not key.isprintable():
        raise InvalidInput.of("Idempotency-Key", "takes 1 to 255 printable characters")
    if in_body is not None and in_body != key:
        raise InvalidInput.of("/idempotency_key", "differs from the Idempotency-Key header; give one of them")
    return key


def traceparent(request: Request) -> str | None:
    """The caller's W3C trace context, if it is valid."""
    header = request.headers.get("traceparent")
    return valid_traceparent(header) if header is not None else None
