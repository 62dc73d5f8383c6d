"""The OpenAPI 3.1 document, built from the operations and the wire models: what is routed is what is described."""

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tenure.api import examples
from tenure.api.body import NDJSON
from tenure.api.operations import Answer, Body, Header, Operation
from tenure.errors import (
    BodyTooLarge,
    Conflict,
    DatabaseUnavailable,
    DeadlinePassed,
    Draining,
    FieldError,
    IdempotencyKeyReused,
    InternalError,
    InvalidInput,
    LeaseLost,
    Malformed,
    NotCancelable,
    NotFound,
    NotRetryable,
    RangeNotSatisfiable,
    RequestTimeout,
    TenureError,
    Unavailable,
    UnsupportedMediaType,
    VersionMismatch,
)
from tenure.wire.problems import MEDIA_TYPE, Problem, problem_of

_DESCRIPTION = """Tenure is a job queue that can always say where a job is, who holds it, when it recovers and why it died.

Delivery is at least once. Names are snake_case, times RFC 3339 in UTC with microseconds, durations `…_seconds`. A field
or parameter that is not known is refused by name; a null where a field may be left out means that it is left out. Errors
are problem documents (RFC 9457) whose `code` never changes its meaning. Every answer carries `X-Request-Id`.
"""

_TAGS = {
    "jobs": "Enqueue, read, list, follow.",
    "cancellation": "Cancel, with a receipt that says what is true.",
    "leases": "For workers: claim, keep, give back.",
    "workers": "Who works here, and what an operator tells them.",
    "dead letters": "For operators: what needs a look, and another try.",
    "artifacts": "Files that jobs left.",
    "service": "The service itself.",
}

_ALWAYS: tuple[type[TenureError], ...] = (Malformed, InvalidInput, InternalError)
"""What any operation may answer: an unreadable path or query, an unknown parameter, a fault of ours."""

_ANY_CONFLICT = {
    LeaseLost: LeaseLost("this token was never a lease of this job", reason="unknown", current_attempt=1),
    NotCancelable: NotCancelable("the job is succeeded already; it finished before any request to cancel"),
    NotRetryable: NotRetryable("the job is running; only dead and failed jobs can be retried"),
    DeadlinePassed: DeadlinePassed("the deadline 2030-01-31T12:00:00+00:00 has passed; give a later one"),
}

_SAMPLES: dict[type[TenureError], TenureError] = {
    **_ANY_CONFLICT,
    Malformed: Malformed("this is not JSON: expected value at line 1 column 12"),
    InvalidInput: InvalidInput(
        "prioritty: there is no such field; did you mean `priority`?",
        errors=[FieldError(pointer="/prioritty", message="there is no such field; did you mean `priority`?")],
    ),
    InternalError: InternalError("this is a fault of the service; its log has the request id"),
    NotFound: NotFound(f"there is no job {examples.JOB_ID}"),
    VersionMismatch: VersionMismatch("the job is at version 4, the request was meant for version 2", current_version=4),
    RangeNotSatisfiable: RangeNotSatisfiable("the file has 23 bytes, and this range begins after the last"),
    BodyTooLarge: BodyTooLarge(
        "/payload is 1,048,577 bytes as JSON; at most 1,048,576 are taken", limit_bytes=1_048_576
    ),
    UnsupportedMediaType: UnsupportedMediaType(
        "the content-type 'text/plain' is not taken here; send `content-type: application/json`"
    ),
    RequestTimeout: RequestTimeout("the body did not arrive within 30 seconds"),
    IdempotencyKeyReused: IdempotencyKeyReused(
        "the idempotency key was used with another body; send the same body again, or a new key for a new job",
        errors=[FieldError(pointer="/idempotency_key", message="was used with another body")],
    ),
    Draining: Draining("the service is stopping and takes no more jobs; ask another one, or come back"),
    DatabaseUnavailable: DatabaseUnavailable("the database cannot be reached"),
    Unavailable: Unavailable("not available now"),
    Conflict: Conflict("the job's state does not allow this"),
}


def document(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    """The whole document."""
    schemas, definitions = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path, parameters = _path(operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, parameters, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": version,
            "summary": "A job queue on PostgreSQL",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": definitions},
    }


_Schemas = dict[tuple[Any, str], dict[str, Any]]


def _schemas(operations: Iterable[Operation]) -> tuple[_Schemas, dict[str, Any]]:
    asked: dict[tuple[type[BaseModel], Any], None] = {(Problem, "serialization"): None}
    for operation in operations:
        asked[operation.query, "validation"] = None
        if operation.body is not None:
            asked[operation.body.model, "validation"] = None
        for answer in operation.answers:
            if answer.model is not None:
                asked[answer.model, "serialization"] = None
    references, whole = models_json_schema(list(asked), ref_template="#/components/schemas/{model}")
    return {key: dict(value) for key, value in references.items()}, whole.get("$defs", {})


def _operation(operation: Operation, parameters: list[dict[str, Any]], schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "description": inspect.cleandoc(operation.endpoint.__doc__ or operation.summary),
        "tags": [operation.tag],
        "parameters": [*parameters, *_query(operation), *map(_header_parameter, operation.headers)],
        "responses": _responses(operation, schemas),
    }
    if operation.body is not None:
        described["requestBody"] = _body(operation.body, schemas)
    return described


_PATH_PARAMETERS = {
    "job_id": ("the job's id", examples.JOB_ID),
    "name": ("the file's name", "orders.csv"),
    "worker_id": ("the worker's name", examples.WORKER["id"]),
}


def _path(path: str) -> tuple[str, list[dict[str, Any]]]:
    parameters: list[dict[str, Any]] = []
    for name, convertor in re.findall(r"{(\w+)(?::(\w+))?}", path):
        description, example = _PATH_PARAMETERS[name]
        parameters.append(
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": description,
                "schema": {"type": "string", "format": "uuid"} if convertor == "uuid" else {"type": "string"},
                "example": example,
            }
        )
    return re.sub(r":\w+}", "}", path), parameters


def _query(operation: Operation) -> list[dict[str, Any]]:
    schema = operation.query.model_json_schema(mode="validation", ref_template="#/components/schemas/{model}")
    parameters = []
    for name, field in schema.get("properties", {}).items():
        options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
        shape = {key: value for key, value in field.items() if key not in {"description", "title", "anyOf", "default"}}
        shape |= options[0] if options else {}
        if field.get("default") not in (None, []):
            shape["default"] = field["default"]
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": field.get("description", ""),
                "schema": shape,
                # `include=payload,result` and `state=dead&state=failed`
                **({"style": "form", "explode": name != "include"} if shape.get("type") == "array" else {}),
            }
        )
    return parameters


def _header_parameter(header: Header) -> dict[str, Any]:
    return {
        "name": header.name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": {"type": "string"},
        "example": header.example,
    }


def _body(body: Body, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {
        "application/json": {
            "schema": schemas[body.model, "validation"],
            "examples": {
                name.replace(" ", "_"): {"summary": name, "value": value} for name, value in body.examples.items()
            },
        }
    }
    if body.ndjson is not None:
        content[NDJSON] = {
            "schema": {"type": "string", "description": "one JSON object a line"},
            "examples": {"lines": {"summary": "one job a line", "value": body.ndjson}},
        }
    return {"required": body.required, "content": content}


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in operation.answers:
        responses.setdefault(str(answer.status), {"description": answer.description, "headers": {}})
        response = responses[str(answer.status)]
        response["description"] = answer.description
        response["headers"] |= _headers((*answer.headers, _REQUEST_ID))
        if answer.example is not None:
            response.setdefault("content", {})[answer.media_type] = _content(answer, schemas)
    for status, errors in _by_status((*_ALWAYS, *operation.problems)).items():
        _add_problems(responses, status, errors, schemas)
    return dict(sorted(responses.items()))


def _content(answer: Answer, schemas: _Schemas) -> dict[str, Any]:
    schema: dict[str, Any]
    if answer.model is not None:
        schema = schemas[answer.model, "serialization"]
    elif answer.media_type == "application/json":
        schema = {"type": "object"}
    else:
        schema = {"type": "string"}
    return {"schema": schema, "examples": {"example": {"value": answer.example}}}


def _by_status(errors: Iterable[type[TenureError]]) -> dict[str, list[type[TenureError]]]:
    grouped: dict[str, list[type[TenureError]]] = {}
    for error in dict.fromkeys(errors):
        grouped.setdefault(str(error.status), []).append(error)
    return grouped


def _add_problems(
    responses: dict[str, Any], status: str, errors: Sequence[type[TenureError]], schemas: _Schemas
) -> None:
    titles = "; ".join(f"`{error.code}`: {error.title}" for error in errors)
    response = responses.setdefault(status, {"description": titles, "headers": _headers((_REQUEST_ID,))})
    if response["description"] != titles:
        response["description"] += f" Or a problem: {titles}."
    if status in {"429", "503"}:
        response["headers"] |= _headers((_RETRY_AFTER,))
    response.setdefault("content", {})[MEDIA_TYPE] = {
        "schema": schemas[Problem, "serialization"],
        "examples": {
            error.code: {
                "summary": error.title,
                "value": problem_of(_SAMPLES[error], request_id="4f1d0b7c2a9e4c1b8d3e5f60"),
            }
            for error in errors
        },
    }


def _headers(headers: Iterable[Header]) -> dict[str, Any]:
    return {
        header.name: {"description": header.description, "schema": {"type": "string"}, "example": header.example}
        for header in headers
    }


_REQUEST_ID = Header(name="X-Request-Id", description="the request's id", example="4f1d0b7c2a9e4c1b8d3e5f60")
_RETRY_AFTER = Header(name="Retry-After", description="come back after this many seconds", example="1")
