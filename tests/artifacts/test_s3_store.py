"""What holds for artifacts in an S3-compatible store."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tenure.artifacts import ArtifactStore, artifact_key, open_artifact_store
from tenure.errors import Unavailable
from tenure.settings import load
from tests.artifacts.stores import contents_of, put

MIB = 1 << 20


async def test_objects_lie_below_the_prefix_of_the_url(s3_store: ArtifactStore, s3_client: Any, s3_bucket: str) -> None:
    key = artifact_key(uuid4(), 2, "a.csv")
    await put(s3_store, key, b"x")
    listed = s3_client.list_objects_v2(Bucket=s3_bucket)["Contents"]
    assert [item["Key"] for item in listed] == [f"some/prefix/{key}"]


async def test_a_failed_upload_is_aborted(s3_store: ArtifactStore, s3_client: Any, s3_bucket: str) -> None:
    seen: list[int] = []

    def uploads() -> list[Any]:
        found: list[Any] = s3_client.list_multipart_uploads(Bucket=s3_bucket).get("Uploads", [])
        return found

    async def fail() -> None:
        async with s3_store.writer(artifact_key(uuid4(), 2, "a.csv")) as writer:
            await writer.write(b"x" * (20 * MIB))
            seen.append(len(uploads()))
            raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await fail()
    assert seen == [1]
    assert uploads() == []


async def test_a_missing_bucket_is_unavailable_not_missing(s3_endpoint: str, tmp_path: Path) -> None:
    store = open_artifact_store(
        load(
            {
                "TENURE_ARTIFACT_STORE": "s3://there-is-no-such-bucket",
                "TENURE_S3_ENDPOINT": s3_endpoint,
                "TENURE_S3_ACCESS_KEY_ID": "test-key",
                "TENURE_S3_SECRET_ACCESS_KEY": "test-secret",
                "TENURE_S3_ALLOW_HTTP": "1",
            }
        ).reports,
        tmp_path,
    )
    with pytest.raises(Unavailable, match="no such bucket"):
        await put(store, artifact_key(uuid4(), 2, "a.csv"), b"x")


async def test_a_piece_larger_than_a_request_reads_whole(s3_store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "a.bin")
    data = bytes(range(256)) * (10 * MIB // 256)
    await put(s3_store, key, data)
    assert await contents_of(s3_store, key, start=1, end=9 * MIB) == data[1 : 9 * MIB]
