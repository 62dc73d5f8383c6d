"""Artifacts in a directory that only this user can read.

A file is written as ``<name>.partial``, flushed to the disk, renamed, and its directories are flushed, too: a power cut
leaves either the whole file or a partial one, which the sweeper removes. All disk work happens in threads.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tenure.artifacts.completing import to_its_end
from tenure.artifacts.store import PARTIAL_SUFFIX, ArtifactWriter, ObjectInfo, parse_key, writable_key
from tenure.errors import ConfigurationError, NotFound, Unavailable

_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 18
"""Smaller writes are gathered up to this: a hop into a thread costs more than copying a few kilobytes."""
_LIST_CHUNK = 500


class LocalArtifactStore:
    """Keeps objects below ``root``, which is created when the first one is written."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    async def check_writable(self) -> None:
        try:
            await asyncio.to_thread(self.root.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"artifacts cannot be kept in {self.root}: {error.strerror} (TENURE_ARTIFACT_STORE)"
            ) from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"artifacts cannot be written to {self.root}: no permission (TENURE_ARTIFACT_STORE)"
            )

    @asynccontextmanager
    async def writer(self, key: str) -> AsyncIterator[ArtifactWriter]:
        final = self.root / writable_key(key)
        partial = final.with_name(final.name + PARTIAL_SUFFIX)
        file = _File()
        whole = False
        try:
            with _translated():
                await to_its_end(asyncio.to_thread(file.create, self.root, partial))
            writer = _LocalWriter(file)
            yield writer
            with _translated():
                await writer.flush()
                await to_its_end(asyncio.to_thread(file.publish, partial, final, self.root))
            whole = True
        finally:
            await to_its_end(asyncio.to_thread(file.close))
            if not whole:
                # The final name, too: a cancellation may have come while the rename was already under way.
                with suppress(OSError):  # the sweeper tries again; what led here is worth more
                    await to_its_end(asyncio.to_thread(_remove, [partial, final], self.root))

    async def stat(self, key: str) -> ObjectInfo | None:
        if parse_key(key) is None:
            return None
        with _translated():
            return await asyncio.to_thread(_info, self.root, key)

    async def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        if parse_key(key) is None:
            raise NotFound("there is no such artifact")
        file = _File()
        try:
            with _translated():
                try:
                    await to_its_end(asyncio.to_thread(file.open, self.root / key))
                except FileNotFoundError:
                    raise NotFound("the artifact's file is gone") from None
            position = start
            while end is None or position < end:
                wanted = _READ_BYTES if end is None else min(_READ_BYTES, end - position)
                with _translated():
                    data = await to_its_end(asyncio.to_thread(file.read, position, wanted))
                if not data:
                    return
                position += len(data)
                yield data
        finally:
            file.close()

    async def delete(self, keys: Collection[str]) -> None:
        paths = [self.root / key for key in keys if parse_key(key) is not None]
        if paths:
            with _translated():
                await to_its_end(asyncio.to_thread(_remove, paths, self.root))

    async def list(self, prefix: str = "") -> AsyncGenerator[ObjectInfo, None]:
        found = _walk(self.root, prefix)
        while True:
            with _translated():
                chunk = await to_its_end(asyncio.to_thread(_next_chunk, found))
            for info in chunk:
                yield info
            if len(chunk) < _LIST_CHUNK:
                return


class _File:
    """An open file. It knows its descriptor even when whoever asked for it was canceled before hearing of it."""

    def __init__(self) -> None:
        self._descriptor = -1

    def create(self, root: Path, partial: Path) -> None:
        # The sweeper may take an empty directory away between two of these calls; it cannot do so for ever.
        for last in (False, False, True):
            try:
                for directory in (root, partial.parent.parent, partial.parent):
                    directory.mkdir(mode=0o700, parents=directory == root, exist_ok=True)
                self._descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                return
            except FileNotFoundError:
                if last:
                    raise

    def open(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def write(self, data: bytearray) -> None:
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(self._descriptor, view[written:])

    def publish(self, partial: Path, final: Path, root: Path) -> None:
        os.fsync(self._descriptor)
        partial.replace(final)
        for directory in (final.parent, final.parent.parent, root):
            _flush_directory(directory)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _LocalWriter:
    def __init__(self, file: _File) -> None:
        self._file = file
        self._gathered = bytearray()

    async def write(self, data: bytes) -> None:
        self._gathered += data
        if len(self._gathered) >= _WRITE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        data, self._gathered = self._gathered, bytearray()
        if data:
            with _translated():
                await to_its_end(asyncio.to_thread(self._file.write, data))


@contextmanager
def _translated() -> Iterator[None]:
    """A disk that is full, gone or forbidden is the operator's matter: say which, without the path."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"the artifact directory cannot be used: {os.strerror(error.errno or 0)}") from error


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(paths: list[Path], root: Path) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        for directory in (path.parent, path.parent.parent):
            with suppress(OSError):  # not empty, or gone: somebody else's files, or nothing to do
                if directory != root:
                    directory.rmdir()


def _info(root: Path, key: str) -> ObjectInfo | None:
    try:
        found = os.lstat(root / key)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return ObjectInfo(
        key=key,
        bytes=found.st_size,
        modified_at=datetime.fromtimestamp(found.st_mtime, UTC),
        etag=f'"{found.st_mtime_ns:x}-{found.st_size:x}"',
    )


def _walk(root: Path, prefix: str) -> Iterator[ObjectInfo]:
    for job in _directories(root):
        if prefix and not f"{job.name}/".startswith(prefix[: len(job.name) + 1]):
            continue
        for attempt in _directories(Path(job.path)):
            for entry in _entries(Path(attempt.path)):
                key = f"{job.name}/{attempt.name}/{entry.name}"
                if key.startswith(prefix) and entry.is_file(follow_symlinks=False):
                    info = _info(root, key)
                    if info is not None:
                        yield info


def _directories(path: Path) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in _entries(path) if entry.is_dir(follow_symlinks=False))


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):  # deleted since its parent was read
        return []


def _next_chunk(found: Iterator[ObjectInfo]) -> list[ObjectInfo]:
    return list(itertools.islice(found, _LIST_CHUNK))
