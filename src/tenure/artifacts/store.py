"""What an artifact store does, and how its objects are named.

An object's key is ``<job id>/<attempt version>/<name>``. The version of the attempt's `leased` event is the fence: two
attempts of one job never write to one key, so a holder that lost its lease cannot touch what its successor writes. That
an object exists makes nothing visible: only a registration, in the same commit as the job's success, does.
"""

import re
from collections.abc import AsyncGenerator, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

PARTIAL_SUFFIX = ".partial"
"""What a local file's name ends with until it is whole. No artifact may be named so."""

# ASCII without separators: the name is a file's name, an object's key and a part of a URL, and must be the same in all.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_KEY = re.compile(
    r"(?P<job>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"/(?P<version>[1-9][0-9]{0,9})"
    r"/(?P<name>[^/]+)\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactKey:
    """What a key says: the job, the attempt (the version of its `leased` event) and the file's name."""

    job_id: UUID
    attempt_version: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """An object as the store sees it. ``etag`` is as HTTP writes it, quotes included; None where the store has none."""

    key: str
    bytes: int
    modified_at: datetime
    etag: str | None


class ArtifactWriter(Protocol):
    """Takes an object's bytes, in order."""

    async def write(self, data: bytes) -> None:
        """Appends. Memory stays bounded: it waits until the store has taken enough of what it was given before."""


class ArtifactStore(Protocol):
    """Keeps objects. Every method raises Unavailable when the store cannot answer now."""

    async def check_writable(self) -> None:
        """Raises ConfigurationError when nothing can ever be written here, as far as that can be seen without a write."""

    def writer(self, key: str) -> AbstractAsyncContextManager[ArtifactWriter]:
        """Writes one object. It exists under ``key``, whole and durable, when the block ends without an error; after an
        error or a cancellation nothing does. Raises ValueError for what is not an artifact's key.
        """

    async def stat(self, key: str) -> ObjectInfo | None:
        """The object's size and age; None where there is none."""

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes from ``start`` (inclusive) to ``end`` (exclusive; None: to the last), in pieces of bounded size.

        Raises NotFound where there is no such object.
        """

    async def delete(self, keys: Collection[str]) -> None:
        """Removes the objects; those that do not exist are no error."""

    def list(self, prefix: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """The objects below a directory (``""``, ``"<job id>/"``, ``"<job id>/<version>/"``), partial ones included."""


def artifact_key(job_id: UUID, attempt_version: int, name: str) -> str:
    """The key of an attempt's file. Raises ValueError for a name that could not be a file's name everywhere."""
    if not _NAME.match(name) or name.endswith(PARTIAL_SUFFIX):
        raise ValueError(
            f"{name!r} cannot name an artifact: take 1 to 200 letters, digits, dots, dashes and underscores, beginning "
            f"with a letter or digit, and not ending with {PARTIAL_SUFFIX}"
        )
    if attempt_version < 1:
        raise ValueError(f"an attempt's version is 1 or more, not {attempt_version}")
    return f"{job_id}/{attempt_version}/{name}"


def parse_key(key: str) -> ArtifactKey | None:
    """What the key says, the key of a partial file included; None for anything that `artifact_key` never made."""
    match = _KEY.match(key)
    if match is None or not _NAME.match(match["name"].removesuffix(PARTIAL_SUFFIX)):
        return None
    return ArtifactKey(job_id=UUID(match["job"]), attempt_version=int(match["version"]), name=match["name"])


def writable_key(key: str) -> str:
    """The key, if an object may be written under it. Raises ValueError."""
    parsed = parse_key(key)
    if parsed is None or parsed.name.endswith(PARTIAL_SUFFIX):
        raise ValueError(f"{key!r} is no artifact's key: make it with artifact_key()")
    return key
