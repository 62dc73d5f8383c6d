"""The description is complete, valid, and what is answered fits it."""

from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from tenure.api.app import OPERATIONS, create_app
from tenure.api.openapi import document
from tenure.api.operations import Operation
from tenure.api.services import Services
from tests.api.calling import claim, running

DOCUMENT = document(OPERATIONS, version="0.1.0")


def described(operation: Operation) -> dict[str, Any]:
    path = operation.path.replace(":uuid", "")
    found = DOCUMENT["paths"][path][operation.method.lower()]
    assert isinstance(found, dict)
    return found


def check(value: Any, schema: dict[str, Any]) -> None:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "components": DOCUMENT["components"]}
    jsonschema.validate(value, whole, format_checker=jsonschema.FormatChecker())


def test_document_is_valid_openapi() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"] == "3.1.0"


async def test_document_is_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json()["paths"] == DOCUMENT["paths"]


async def test_what_is_routed_is_what_is_described(services: Services) -> None:
    routed = {route.path for route in create_app(services).routes if isinstance(route, Route)}
    assert {path.replace(":uuid", "") for path in routed} == set(DOCUMENT["paths"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.operation_id)
def test_operation_is_described_whole(operation: Operation) -> None:
    shown = described(operation)
    assert shown["operationId"] == operation.endpoint.__name__
    assert shown["summary"]
    assert len(shown["description"]) > 20
    assert {"400", "422", "500"} <= set(shown["responses"])
    if operation.method == "POST":
        assert {"408", "413", "415", "503"} <= set(shown["responses"])
        assert shown["requestBody"]["content"]["application/json"]["examples"]
    for parameter in shown["parameters"]:
        assert parameter["description"]
    for status, response in shown["responses"].items():
        assert response["description"]
        assert "X-Request-Id" in response["headers"]
        if status not in {"204", "304"}:
            assert all(content["examples"] for content in response["content"].values())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.operation_id)
def test_every_example_fits_its_schema(operation: Operation) -> None:
    shown = described(operation)
    bodies = [shown["requestBody"]] if "requestBody" in shown else []
    for content in [*bodies, *shown["responses"].values()]:
        for media in content.get("content", {}).values():
            for example in media["examples"].values():
                check(example["value"], media["schema"])


def test_operation_ids_are_unique() -> None:
    ids = [operation.operation_id for operation in OPERATIONS]
    assert len(ids) == len(set(ids))


async def test_answers_fit_what_is_described(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client, tags=["a"], metadata={"b": 1}, expires_in_seconds=60)
    beat = await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token, "progress": {"fraction": 1}})
    answers = [
        ("/jobs/{job_id}/heartbeat", beat),
        ("/jobs/{job_id}", await client.get(f"/jobs/{job_id}")),
        ("/jobs/{job_id}/cancel", await client.post(f"/jobs/{job_id}/cancel")),
        ("/jobs/{job_id}", await client.get(f"/jobs/{job_id}?include=events")),
        ("/jobs", await client.get("/jobs?include=payload")),
        ("/jobs", await client.get("/jobs?limit=0")),
        ("/jobs/{job_id}/complete", await client.post(f"/jobs/{job_id}/complete", json={"lease_token": "x"})),
        ("/jobs/{job_id}/fail", await client.post(
            f"/jobs/{job_id}/fail", json={"lease_token": token, "error": {"kind": "unknown", "message": "x"}})),
        ("/jobs/{job_id}/events", await client.get(f"/jobs/{job_id}/events")),
        ("/jobs/batch", await client.post("/jobs/batch", json={"jobs": [{"kind": "a"}]})),
        ("/jobs/{job_id}/artifacts", await client.get(f"/jobs/{job_id}/artifacts")),
        ("/dead", await client.get("/dead")),
        ("/readyz", await client.get("/readyz")),
        ("/healthz", await client.get("/healthz")),
    ]  # fmt: skip
    assert await claim(client) != []
    for path, response in answers:
        method = response.request.method.lower()
        content = DOCUMENT["paths"][path][method]["responses"][str(response.status_code)]["content"]
        check(response.json(), content[response.headers["content-type"]]["schema"])
