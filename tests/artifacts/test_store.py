"""What holds for every artifact store."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tenure.artifacts import ArtifactStore, ObjectInfo, artifact_key
from tenure.errors import NotFound
from tests.artifacts.stores import contents_of, keys_of, put

MIB = 1 << 20
JOB = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


async def test_what_was_written_is_read_back_whole(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "orders.csv")
    async with store.writer(key) as writer:
        for piece in (b"a", b"", b"bc" * 1_000, "ü€🎁".encode()):
            await writer.write(piece)
    assert await contents_of(store, key) == b"a" + b"bc" * 1_000 + "ü€🎁".encode()
    info = await store.stat(key)
    assert isinstance(info, ObjectInfo)
    assert info.bytes == 1 + 2_000 + len("ü€🎁".encode())
    assert abs(info.modified_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert info.etag is not None
    assert info.etag.startswith('"')


async def test_an_object_of_many_parts_is_read_back_whole(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "large.bin")
    pieces = [bytes([number]) * (3 * MIB + number) for number in range(7)]
    async with store.writer(key) as writer:
        for piece in pieces:
            await writer.write(piece)
    assert await contents_of(store, key) == b"".join(pieces)


async def test_an_empty_object_exists(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "empty.csv")
    async with store.writer(key):
        pass
    assert await contents_of(store, key) == b""
    info = await store.stat(key)
    assert info is not None
    assert info.bytes == 0


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, 7, b"3456"), (8, None, b"89"), (8, 100, b"89"), (10, None, b""), (4, 4, b"")],
)
async def test_a_part_is_read_without_the_rest(
    store: ArtifactStore, start: int, end: int | None, expected: bytes
) -> None:
    key = artifact_key(uuid4(), 2, "digits.txt")
    await put(store, key, b"0123456789")
    assert b"".join([piece async for piece in store.stream(key, start=start, end=end)]) == expected


async def test_an_error_while_writing_leaves_nothing(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "orders.csv")

    async def fail() -> None:
        async with store.writer(key) as writer:
            await writer.write(b"x" * (20 * MIB))
            raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await fail()
    assert await store.stat(key) is None
    assert await keys_of(store) == []


async def test_a_cancellation_while_writing_leaves_nothing(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "orders.csv")
    wrote = asyncio.Event()

    async def write_for_ever() -> None:
        async with store.writer(key) as writer:
            while True:
                await writer.write(b"x" * MIB)
                wrote.set()

    task = asyncio.create_task(write_for_ever())
    await wrote.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.stat(key) is None
    assert await keys_of(store) == []


async def test_nothing_is_visible_under_the_key_before_the_end(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "orders.csv")
    async with store.writer(key) as writer:
        await writer.write(b"x" * (20 * MIB))
        assert await store.stat(key) is None
    assert await store.stat(key) is not None


async def test_a_missing_object_is_not_found(store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "orders.csv")
    assert await store.stat(key) is None
    with pytest.raises(NotFound):
        await contents_of(store, key)


async def test_deleting_removes_what_is_named_and_nothing_else(store: ArtifactStore) -> None:
    job = uuid4()
    first, second, other = (artifact_key(job, 2, "a.csv"), artifact_key(job, 2, "b.csv"), artifact_key(job, 5, "a.csv"))
    for key in (first, second, other):
        await put(store, key, b"x")
    await store.delete([first, artifact_key(uuid4(), 2, "never.csv")])
    assert await keys_of(store) == sorted([second, other])
    await store.delete([])
    await store.delete([first])
    assert await keys_of(store) == sorted([second, other])


async def test_a_listing_is_limited_to_a_job_or_an_attempt(store: ArtifactStore) -> None:
    job, other = uuid4(), uuid4()
    keys = [artifact_key(job, 2, "a.csv"), artifact_key(job, 12, "a.csv"), artifact_key(other, 2, "a.csv")]
    for key in keys:
        await put(store, key, b"x")
    assert await keys_of(store) == sorted(keys)
    assert await keys_of(store, f"{job}/") == sorted(keys[:2])
    assert await keys_of(store, f"{job}/2/") == keys[:1]
    assert await keys_of(store, f"{JOB}/") == []


@pytest.mark.parametrize(
    "key",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "orders.csv",
        f"{JOB}/2/../../../x",
        f"{JOB}/2/a/b",
        f"{JOB}/0/a.csv",
        f"{JOB}/2/.hidden",
        f"{JOB}/2/a.csv\x00",
        f"{JOB}/2/a.csv\n",
    ],
)
async def test_a_key_that_was_never_made_reaches_nothing(store: ArtifactStore, key: str) -> None:
    with pytest.raises(ValueError, match="no artifact's key"):
        async with store.writer(key):
            pass
    assert await store.stat(key) is None
    with pytest.raises(NotFound):
        await contents_of(store, key)
    await store.delete([key])


async def test_two_attempts_of_one_job_do_not_touch_each_other(store: ArtifactStore) -> None:
    job = uuid4()
    old, new = artifact_key(job, 2, "orders.csv"), artifact_key(job, 4, "orders.csv")
    async with store.writer(old) as late, store.writer(new) as current:
        await late.write(b"late")
        await current.write(b"current")
    assert await contents_of(store, old) == b"late"
    assert await contents_of(store, new) == b"current"
