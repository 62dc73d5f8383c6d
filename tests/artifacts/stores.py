"""Artifact stores for the tests: a directory, and an S3 server of this process on a loopback port."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # it has no stubs
import pytest
from moto.server import ThreadedMotoServer

from tenure.artifacts import ArtifactStore, open_artifact_store
from tenure.settings import load


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_client(s3_endpoint: str) -> Any:
    """Amazon's own client, to look at the bucket from outside."""
    return boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        aws_access_key_id="test-key",
        aws_secret_access_key="test-secret",
        region_name="us-east-1",
    )


@pytest.fixture
def s3_bucket(s3_client: Any) -> str:
    bucket = f"artifacts-{uuid4().hex[:12]}"
    s3_client.create_bucket(Bucket=bucket)
    return bucket


@pytest.fixture
def s3_store(s3_endpoint: str, s3_bucket: str) -> ArtifactStore:
    settings = load(
        {
            "TENURE_ARTIFACT_STORE": f"s3://{s3_bucket}/some/prefix",
            "TENURE_S3_ENDPOINT": s3_endpoint,
            "TENURE_S3_ACCESS_KEY_ID": "test-key",
            "TENURE_S3_SECRET_ACCESS_KEY": "test-secret",
            "TENURE_S3_ALLOW_HTTP": "true",
        }
    )
    return open_artifact_store(settings.reports, Path(tempfile.gettempdir()))


@pytest.fixture
def local_store(tmp_path: Path) -> ArtifactStore:
    return open_artifact_store(load({}).reports, tmp_path)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> ArtifactStore:
    """Each kind of store in turn: what a test says holds for all of them."""
    found: ArtifactStore = request.getfixturevalue(f"{request.param}_store")
    return found


async def keys_of(store: ArtifactStore, prefix: str = "") -> list[str]:
    return sorted([info.key async for info in store.list(prefix)])


async def contents_of(store: ArtifactStore, key: str, **part: int) -> bytes:
    return b"".join([piece async for piece in store.stream(key, **part)])


async def put(store: ArtifactStore, key: str, data: bytes) -> None:
    async with store.writer(key) as writer:
        await writer.write(data)
