"""Downloading what a job left: whole, in ranges, and only if changed."""

import hashlib
from pathlib import Path

import httpx
import pytest

from tenure.api.artifacts import content_disposition, parse_range
from tenure.api.services import Services
from tenure.artifacts import artifact_key
from tenure.errors import RangeNotSatisfiable
from tenure.jobs.model import State
from tenure.store.artifacts import Artifact, register
from tenure.store.database import Database
from tests.api.calling import problem
from tests.factories import in_state

CONTENT = bytes(range(256)) * 1_000
TAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'


async def publish(services: Services, database: Database, name: str = "orders.csv", content: bytes = CONTENT) -> str:
    """A finished job with one file; answers the file's path."""
    job = await in_state(database, State.SUCCEEDED)
    key = artifact_key(job.id, 2, name)
    assert services.artifacts is not None
    async with services.artifacts.writer(key) as writer:
        await writer.write(content)
    artifact = Artifact(
        name=name,
        location=key,
        bytes=len(content),
        rows=7,
        sha256=hashlib.sha256(content).hexdigest(),
        content_type="text/csv; charset=utf-8",
    )
    async with database.transaction() as connection:
        await register(connection, job.id, [artifact])
    return f"/jobs/{job.id}/artifacts/{name}"


@pytest.fixture
async def path(services: Services, database: Database) -> str:
    return await publish(services, database)


async def test_file_is_listed_and_streamed_whole(client: httpx.AsyncClient, path: str) -> None:
    listed = (await client.get(path.rpartition("/")[0])).json()
    (item,) = listed["items"]
    assert (item["name"], item["bytes"], item["rows"], item["sha256"]) == (
        "orders.csv",
        len(CONTENT),
        7,
        TAG.strip('"'),
    )
    response = await client.get(path)
    assert (response.status_code, response.content) == (200, CONTENT)
    assert response.headers["content-length"] == str(len(CONTENT))
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="orders.csv"'
    assert response.headers["etag"] == TAG
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_head_tells_the_size_and_sends_nothing(client: httpx.AsyncClient, path: str) -> None:
    response = await client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(CONTENT))


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=0-99", slice(0, 100)),
        ("bytes=100-", slice(100, None)),
        ("bytes=-100", slice(-100, None)),
        ("bytes=255999-999999999", slice(255_999, None)),
        ("bytes=-999999999", slice(0, None)),
    ],
)
async def test_range_is_answered_alone(client: httpx.AsyncClient, path: str, header: str, part: slice) -> None:
    response = await client.get(path, headers={"Range": header})
    assert (response.status_code, response.content) == (206, CONTENT[part])
    start, end, _ = part.indices(len(CONTENT))
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"


@pytest.mark.parametrize("header", ["bytes=256000-", "bytes=999999-1000000", "bytes=-0"])
async def test_range_outside_is_416_with_the_size(client: httpx.AsyncClient, path: str, header: str) -> None:
    response = await client.get(path, headers={"Range": header})
    problem(response, 416, "range-not-satisfiable")
    assert response.headers["content-range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.parametrize("header", ["bytes=0-1,5-6", "items=0-1", "bytes=5-1", "bytes=-", "bytes=a-b", "x", ""])
async def test_range_that_is_not_understood_is_ignored(client: httpx.AsyncClient, path: str, header: str) -> None:
    response = await client.get(path, headers={"Range": header})
    assert (response.status_code, len(response.content)) == (200, len(CONTENT))


async def test_unchanged_file_is_not_sent_again(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path, headers={"If-None-Match": f'"x", {TAG}'})
    assert (response.status_code, response.content) == (304, b"")
    assert (await client.get(path, headers={"If-None-Match": '"x"'})).status_code == 200


async def test_range_belongs_to_the_file_it_was_asked_of(client: httpx.AsyncClient, path: str) -> None:
    modified = (await client.get(path)).headers["last-modified"]
    for if_range, status in ((TAG, 206), ('"x"', 200), (f"W/{TAG}", 200), (modified, 206), ("yesterday", 200)):
        response = await client.get(path, headers={"Range": "bytes=0-9", "If-Range": if_range})
        assert response.status_code == status, if_range


async def test_empty_file_is_a_file(client: httpx.AsyncClient, services: Services, database: Database) -> None:
    path = await publish(services, database, "empty.csv", b"")
    response = await client.get(path)
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "0")
    assert (await client.get(path, headers={"Range": "bytes=0-"})).status_code == 416


async def test_what_is_not_registered_is_404(client: httpx.AsyncClient, path: str, tmp_path: Path) -> None:
    for name in ("other.csv", "..%2f..%2fetc%2fpasswd", "%2e%2e", "orders.csv.partial", "a" * 500):
        assert problem(await client.get(f"{path.rpartition('/')[0]}/{name}"), 404, "not-found")


async def test_registered_file_that_is_gone_from_the_store_is_404(
    client: httpx.AsyncClient, services: Services, path: str
) -> None:
    job_id = path.split("/")[2]
    assert services.artifacts is not None
    await services.artifacts.delete([f"{job_id}/2/orders.csv"])
    assert problem(await client.get(path), 404, "not-found")


async def test_file_is_streamed_over_a_socket(url: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get(path)).content == CONTENT
        assert (await client.head(path)).headers["content-length"] == str(len(CONTENT))


def test_file_names_are_safe_in_headers() -> None:
    assert content_disposition("a b.csv") == 'attachment; filename="a b.csv"'
    assert content_disposition('x"\r\ny.csv') == "attachment; filename=\"x___y.csv\"; filename*=UTF-8''x%22%0D%0Ay.csv"
    assert content_disposition("ü.csv") == "attachment; filename=\"_.csv\"; filename*=UTF-8''%C3%BC.csv"


def test_range_of_an_empty_file_is_outside() -> None:
    for header in ("bytes=0-", "bytes=-5", "bytes=0-0"):
        with pytest.raises(RangeNotSatisfiable):
            parse_range(header, 0)
