"""What holds for every request: odd ones are told what is wrong, none is a 500, nothing leaks."""

import asyncio
import gzip
import logging
import re
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tenure.api.app import OPERATIONS, create_app
from tenure.api.edge import Edge
from tenure.api.services import Services
from tenure.store.database import Database
from tests.api.calling import JSON, enqueue, pointers, problem, read
from tests.api.conftest import MakeServices, client_of, serving
from tests.api.test_enqueue import count
from tests.api.test_read import UNKNOWN

PATHS = sorted({re.sub(r"{\w+(:\w+)?}", UNKNOWN, operation.path) for operation in OPERATIONS})
BODIES = sorted(
    {re.sub(r"{\w+(:\w+)?}", UNKNOWN, operation.path) for operation in OPERATIONS if operation.body is not None}
)
GOOD = b'{"kind":"test.noop"}'


async def raw(url: str, request: bytes, *, close: bool = False) -> bytes:
    """Sends bytes as they are; answers what came back until the end of the first answer, or of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    if close:
        writer.write_eof()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        return head + (await reader.readexactly(int(length.group(1))) if length else await reader.read())
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"\xef\xbb\xbf" + GOOD, 400, "malformed"),
        (b'{"kind":"\xff"}', 400, "malformed"),
        (b'{"kind":"a","kind":"b"}', 400, "malformed"),
        (b'{"kind":"a"}}', 400, "malformed"),
        (b'{"kind":"a"', 400, "malformed"),
        (b'{"kind":NaN}', 400, "malformed"),
        (b"null", 422, "invalid-input"),
        (b"3", 422, "invalid-input"),
        (b'"text"', 422, "invalid-input"),
        (b"[]", 422, "invalid-input"),
        (b"[" * 50_000, 422, "invalid-input"),
    ],
)
async def test_odd_body_is_refused_everywhere(client: httpx.AsyncClient, body: bytes, status: int, code: str) -> None:
    for path in BODIES:
        response = await client.post(path, content=body, headers=JSON)
        if body == b"" and path.rpartition("/")[2] in {"cancel", "retry", "quiet", "terminate", "resume"}:
            assert problem(response, 404, "not-found")  # their bodies may be absent
        else:
            assert problem(response, status, code)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json; charset=latin-1",
        "",
        None,
    ],
)
async def test_other_media_types_are_415(client: httpx.AsyncClient, content_type: str | None) -> None:
    for path in BODIES:
        request = client.build_request("POST", path, content=GOOD)
        if content_type is not None:
            request.headers["content-type"] = content_type
        document = problem(await client.send(request), 415, "unsupported-media-type")
        assert "application/json" in document["detail"] or "UTF-8" in document["detail"]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/vnd.x+json",
    ],
)
async def test_json_is_taken_under_all_its_names(client: httpx.AsyncClient, content_type: str) -> None:
    response = await client.post("/jobs", content=GOOD, headers={"content-type": content_type})
    assert response.status_code == 202


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"])
async def test_compressed_bodies_are_415(client: httpx.AsyncClient, encoding: str) -> None:
    bomb = gzip.compress(b" " * 10_000_000) if "gzip" in encoding else zlib.compress(GOOD)
    for path in BODIES:
        response = await client.post(path, content=bomb, headers=JSON | {"content-encoding": encoding})
        assert problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_body_whose_fields_are_all_optional_may_be_absent(client: httpx.AsyncClient, verb: str) -> None:
    job_id = (await enqueue(client))["id"]
    await client.post(f"/jobs/{job_id}/{verb}")
    assert (await client.post(f"/jobs/{job_id}/{verb}", headers=JSON)).status_code != 400


@pytest.mark.parametrize(
    "path",
    ["/jobs/%ff", "/%ff", "/jobs/a%00b", "/jobs/%ED%A0%80", "/jobs?queue=%ff", "/jobs?queue=a%00", "/jobs?%ff=1",
     f"/jobs/{UNKNOWN}/artifacts/%c3%28"],
)  # fmt: skip
async def test_path_and_query_are_utf8_without_nul(client: httpx.AsyncClient, path: str) -> None:
    assert problem(await client.get(path), 400, "malformed")


async def test_wrong_method_is_405_with_what_is_allowed(client: httpx.AsyncClient) -> None:
    for path in PATHS:
        allowed = (await client.options(path)).headers["allow"].split(", ")
        assert {"OPTIONS"} < set(allowed)
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} - set(allowed):
            response = await client.request(method, path, headers={"x-http-method-override": "GET"})
            assert response.status_code == 405
            assert response.headers["allow"].split(", ") == allowed
            if method != "HEAD":
                assert problem(response, 405, "method-not-allowed")


async def test_slash_at_the_end_is_no_redirect(client: httpx.AsyncClient) -> None:
    for path in PATHS:
        for method in ("GET", "POST"):
            assert problem(await client.request(method, path + "/"), 404, "not-found")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/jobs", "/dead"])
async def test_head_is_get_without_a_body(client: httpx.AsyncClient, path: str) -> None:
    head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-1._Z", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("ü", False), ("<x>", False)],
)
async def test_request_id_is_the_callers_when_sane(client: httpx.AsyncClient, sent: str, kept: bool) -> None:
    for path in ("/healthz", "/nowhere", "/jobs/%ff"):
        response = await client.get(path, headers=[(b"x-request-id", sent.encode())])
        answered = response.headers["x-request-id"]
        assert (answered == sent) == kept
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", answered)


async def test_every_answer_says_how_it_may_be_used(client: httpx.AsyncClient) -> None:
    for path in ("/jobs", "/nowhere", "/jobs?x=1"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


async def test_path_that_is_nearly_one_is_pointed_at(client: httpx.AsyncClient) -> None:
    assert "/healthz" in problem(await client.get("/health"), 404, "not-found")["detail"]
    assert "did you mean" not in problem(await client.get("/wp-login.php"), 404, "not-found")["detail"]


async def test_fault_of_ours_says_nothing_of_the_inside(
    client: httpx.AsyncClient, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> list[str]:
        raise RuntimeError("postgresql://user:secret@db.internal/tenure SELECT * FROM tenure.jobs")

    services.lifecycle.why_not_ready = broken
    with caplog.at_level(logging.ERROR):
        response = await client.get("/readyz")
    document = problem(response, 500, "internal-error")
    assert not re.search(r"postgresql|SELECT|secret|RuntimeError|\.py", response.text)
    assert document["request_id"] in caplog.text


async def test_refusals_say_nothing_of_the_inside(client: httpx.AsyncClient) -> None:
    job_id = (await enqueue(client, idempotency_key="k"))["id"]
    responses = [
        await client.get("/jobs?limit=x"),
        await client.get("/nowhere"),
        await client.post("/jobs", json={"kind": "test.noop", "payload": 1, "idempotency_key": "k"}),
        await client.post("/jobs", content=b"{", headers=JSON),
        await client.post(f"/jobs/{job_id}/complete", json={"lease_token": "x"}),
        await client.post(f"/jobs/{job_id}/retry"),
    ]
    for response in responses:
        assert response.status_code >= 400
        assert not re.search(r"(?i)select|asyncpg|pydantic|traceback|tenure\.jobs|site-packages|127\.0", response.text)


async def test_announced_length_over_the_limit_is_413_before_the_body_comes(url: str) -> None:
    head = b"POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\n\r\n"
    answer = await raw(url, head)
    assert b" 413 " in answer.splitlines()[0]
    assert b"body-too-large" in answer


async def test_body_without_a_length_is_413_once_it_is_over(url: str) -> None:
    head = b"POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    answer = await raw(url, head + chunk * 60)  # never ended: the verdict does not wait for the end
    assert b" 413 " in answer.splitlines()[0]


async def test_connection_goes_on_after_a_body_that_was_too_large(url: str, database: Database) -> None:
    async def large() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield b" " * 65_536

    async with httpx.AsyncClient(base_url=url) as client:
        response = await client.post("/jobs", content=large(), headers=JSON)
        assert problem(response, 413, "body-too-large")
        assert (await client.post("/jobs", content=GOOD, headers=JSON)).status_code == 202
    assert await count(database) == 1


async def test_body_that_does_not_arrive_in_time_is_408(make_services: MakeServices, database: Database) -> None:
    async with serving(create_app(make_services(BODY_TIMEOUT_SECONDS="0.2"))) as url:
        head = b"POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"
        answer = await raw(url, head + GOOD[:5])
    assert b" 408 " in answer.splitlines()[0]
    assert b"request-timeout" in answer
    assert b"connection: close" in answer.lower()
    assert await count(database) == 0


async def test_half_a_body_enqueues_nothing(url: str, database: Database) -> None:
    head = b"POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n"
    with pytest.raises(asyncio.IncompleteReadError):
        await raw(url, head + GOOD, close=True)
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/healthz")).status_code == 200
    assert await count(database) == 0


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /jobs/\xff HTTP/1.1", b"400"),
        (b"GET /jobs/%ff HTTP/1.1", b"400"),
        (b"GET http://elsewhere/healthz HTTP/1.1", b"200"),
        (b"GET /jobs?limit=1#fragment HTTP/1.1", b"200"),
        (b"GET //jobs HTTP/1.1", b"404"),
        (b"GET /jobs/" + b"a" * 8_192 + b" HTTP/1.1", b"404"),
        (b"GET /jobs?limit=" + b"9" * 8_192 + b" HTTP/1.1", b"422"),
        (b"OPTIONS * HTTP/1.1", b"404"),
        (b"nonsense", b"400"),
    ],
)
async def test_odd_request_line_is_answered(url: str, line: bytes, status: bytes) -> None:
    answer = await raw(url, line + b"\r\nhost: x\r\nconnection: close\r\n\r\n", close=False)
    assert answer.split(b" ")[1] == status, answer


async def test_huge_header_is_no_fault_of_ours(url: str) -> None:
    answer = await raw(url, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-large: " + b"a" * 100_000 + b"\r\n\r\n")
    assert answer.split(b" ")[1] in {b"200", b"400", b"431"}


async def test_answer_leaves_after_the_commit(url: str, database: Database) -> None:
    async with httpx.AsyncClient(base_url=url) as writer:
        for _ in range(20):
            job = await enqueue(writer)
            async with httpx.AsyncClient(base_url=url) as reader:
                assert (await read(reader, job["id"]))["id"] == job["id"]


async def test_limits_hold_for_settings_of_another_size(make_services: MakeServices) -> None:
    async with client_of(make_services(MAX_PAYLOAD_BYTES="64")) as client:
        large: Any = {"kind": "test.noop", "metadata": {"a": "x" * 16_000}, "payload": "x" * 62}
        assert (await client.post("/jobs", json=large)).status_code == 202
        response = await client.post("/jobs", content=b" " * 70_000 + GOOD, headers=JSON)
        assert problem(response, 413, "body-too-large")["limit_bytes"] == 65_536 + 3 * 64


async def test_unknown_parameter_of_a_post_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    assert pointers(await client.post("/jobs?dry_run=1", json={"kind": "test.noop"})) == ["dry_run"]
    assert await count(database) == 0


async def test_too_many_requests_at_once_are_told_to_come_back_and_health_is_answered_all_the_same() -> None:
    under_way, finish = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            under_way.set()
            await finish.wait()
        await PlainTextResponse("done")(scope, receive, send)

    transport = httpx.ASGITransport(Edge(slow, max_requests=1))
    async with httpx.AsyncClient(transport=transport, base_url="http://tenure") as busy:
        first = asyncio.create_task(busy.get("/slow"))
        await under_way.wait()
        refused = await busy.get("/jobs")
        problem(refused, 503, "unavailable")
        assert "Retry-After" in refused.headers
        assert (await busy.get("/healthz")).status_code == 200
        finish.set()
        assert (await first).status_code == 200
        assert (await busy.get("/jobs")).status_code == 200
