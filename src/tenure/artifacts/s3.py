"""Artifacts in an S3-compatible store, by obstore (the Rust crate object_store, from Python).

An upload in parts is what S3 has for "written under a temporary name": until it is completed nobody can read any of it.
A process that dies leaves an incomplete upload, which is invisible here; a lifecycle rule of the bucket removes those.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from tenure.artifacts.completing import to_its_end
from tenure.artifacts.store import ArtifactWriter, ObjectInfo, parse_key, writable_key
from tenure.errors import ConfigurationError, NotFound, Unavailable
from tenure.settings import ReportSettings

_PART_BYTES = 8 << 20
"""S3 takes at most 10,000 parts: with this size a file may have 80 GB, and an upload holds at most three parts."""
_PARTS_AT_ONCE = 2
_READ_BYTES = 4 << 20
_REQUEST_SECONDS = 30.0
"""Bounds each request, so that a cancellation, which waits for the request under way, is bounded, too."""


class S3ArtifactStore:
    """Keeps objects in a bucket, below the prefix of its URL."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    @classmethod
    def open(cls, settings: ReportSettings) -> "S3ArtifactStore":
        """Opens the store that the settings name; nothing is asked of it yet. Raises ConfigurationError."""
        parts = urlsplit(settings.artifact_store)
        if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise ConfigurationError("TENURE_ARTIFACT_STORE must be s3://bucket or s3://bucket/prefix")
        if bool(settings.s3_access_key_id) != bool(settings.s3_secret_access_key):
            raise ConfigurationError(
                "TENURE_S3_ACCESS_KEY_ID and TENURE_S3_SECRET_ACCESS_KEY go together: set both or none"
            )
        if settings.s3_endpoint.startswith("http://") and not settings.s3_allow_http:
            raise ConfigurationError("TENURE_S3_ENDPOINT has no TLS: take https://, or set TENURE_S3_ALLOW_HTTP=true")
        options: dict[str, Any] = {"region": settings.s3_region}
        if settings.s3_endpoint:
            options["endpoint"] = settings.s3_endpoint
        if settings.s3_access_key_id:
            options["access_key_id"] = settings.s3_access_key_id
            options["secret_access_key"] = settings.s3_secret_access_key
        try:
            store = S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                client_options={"allow_http": settings.s3_allow_http, "timeout": timedelta(seconds=_REQUEST_SECONDS)},
                retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=_REQUEST_SECONDS)},
                **options,
            )
        except (BaseError, ValueError) as error:
            raise ConfigurationError(f"the S3 store cannot be opened as set: {error}") from error
        return cls(store)

    async def check_writable(self) -> None:
        """Nothing can be told without a write; a store that is away may be back when the first one comes."""

    @asynccontextmanager
    async def writer(self, key: str) -> AsyncIterator[ArtifactWriter]:
        upload = obstore.open_writer_async(
            self._store, writable_key(key), buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )
        try:
            yield _S3Writer(upload)
        except BaseException as error:
            with suppress(BaseError, OSError):  # what led here is worth more than that it could not be tidied up
                await to_its_end(upload.__aexit__(type(error), error, None))
            raise
        try:
            with _translated():
                await to_its_end(upload.close())
        except BaseException:
            # Whether it was completed is not known: the answer may have been lost.
            with suppress(Unavailable):
                await self.delete([key])
            raise

    async def stat(self, key: str) -> ObjectInfo | None:
        if parse_key(key) is None:
            return None
        with _translated():
            try:
                return _info(await obstore.head_async(self._store, key))
            except FileNotFoundError:
                return None

    async def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        info = await self.stat(key)
        if info is None:
            raise NotFound("the artifact's file is gone")
        last = info.bytes if end is None else min(end, info.bytes)
        # A request for each piece: a reader that is slow then holds no answer open past its timeout, and no memory.
        for position in range(start, last, _READ_BYTES):
            with _translated():
                try:
                    piece = await obstore.get_range_async(
                        self._store, key, start=position, end=min(position + _READ_BYTES, last)
                    )
                except FileNotFoundError:
                    raise NotFound("the artifact's file is gone") from None
            yield bytes(piece)

    async def delete(self, keys: Collection[str]) -> None:
        wanted = [key for key in keys if parse_key(key) is not None]
        if wanted:
            with _translated(), suppress(FileNotFoundError):
                await to_its_end(obstore.delete_async(self._store, wanted))

    async def list(self, prefix: str = "") -> AsyncGenerator[ObjectInfo, None]:
        found = obstore.list(self._store, prefix.rstrip("/") or None, chunk_size=1_000)
        while True:
            with _translated():
                try:
                    chunk = await anext(found)
                except StopAsyncIteration:
                    return
            for meta in chunk:
                yield _info(meta)


class _S3Writer:
    def __init__(self, upload: "obstore.AsyncWritableFile") -> None:
        self._upload = upload

    async def write(self, data: bytes) -> None:
        with _translated():
            await to_its_end(self._upload.write(data))


def _info(meta: Any) -> ObjectInfo:
    return ObjectInfo(key=meta["path"], bytes=meta["size"], modified_at=meta["last_modified"], etag=meta["e_tag"])


@contextmanager
def _translated() -> Iterator[None]:
    """The library's errors hold addresses and answers of the store: they stay the cause, the caller gets a sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise Unavailable("the artifact store has no such bucket") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Unavailable("the artifact store refuses our credentials") from error
    except (BaseError, OSError) as error:
        raise Unavailable("the artifact store cannot be reached") from error
