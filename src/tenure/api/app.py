"""The application: FastAPI, with one route for each path and one rendering of every error."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from rapidfuzz import fuzz, process
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tenure.api import artifacts, batch, cancel, dead, events, health, jobs, leases, retry, settle, workers
from tenure.api.answers import problem_answer
from tenure.api.context import ApiContext
from tenure.api.edge import Edge
from tenure.api.openapi import document
from tenure.api.operations import Operation, routes_of
from tenure.api.services import Services
from tenure.errors import FieldError, InvalidInput, Malformed, MethodNotAllowed, NotFound, TenureError
from tenure.wire.json import pointer

# Routing tries them in this order: what is called a thousand times a second first.
OPERATIONS: tuple[Operation, ...] = (
    *jobs.OPERATIONS,
    *leases.OPERATIONS,
    *settle.OPERATIONS,
    *batch.OPERATIONS,
    *events.OPERATIONS,
    *cancel.OPERATIONS,
    *retry.OPERATIONS,
    *dead.OPERATIONS,
    *artifacts.OPERATIONS,
    *workers.OPERATIONS,
    *health.OPERATIONS,
)


def create_app(services: Services) -> FastAPI:
    """The application over these services. Its lifespan ends what it runs in the background."""
    context = ApiContext.of(services)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await context.close()

    app = FastAPI(
        title="Tenure",
        version=version("tenure"),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    app.state.body_timeout_seconds = services.settings.http.body_timeout_seconds
    openapi = openapi_document()
    app.openapi = lambda: openapi  # type: ignore[method-assign]
    app.router.routes.extend(routes_of(context, OPERATIONS))
    app.add_exception_handler(TenureError, _on_tenure_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_middleware(Edge, max_requests=services.settings.http.max_requests)
    return app


def openapi_document() -> dict[str, Any]:
    """The API's description, without a service."""
    return document(OPERATIONS, version=version("tenure"))


async def _on_tenure_error(request: Request, error: Any) -> Response:
    return problem_answer(error, request.scope)


async def _on_http_exception(request: Request, error: Any) -> Response:
    """What the framework refuses by itself, in our form."""
    match error.status_code:
        case 404:
            refusal: TenureError = _nothing_there(request.url.path)
        case 405:
            allow = (error.headers or {}).get("Allow", "")
            refusal = MethodNotAllowed(f"{request.method} is not allowed here; allowed: {allow}", allow=allow)
        case _:
            refusal = Malformed(str(error.detail))
            if error.status_code >= 500:
                raise error
    return problem_answer(refusal, request.scope)


async def _on_validation_error(request: Request, error: Any) -> Response:
    fields = [FieldError(pointer=pointer(*detail["loc"][1:]), message=str(detail["msg"])) for detail in error.errors()]
    return problem_answer(
        InvalidInput("the request does not have the form expected here", errors=fields), request.scope
    )


def _nothing_there(path: str) -> NotFound:
    if path.startswith("/jobs/") and path.count("/") >= 2:
        return NotFound("there is no such job or nothing of that name about a job; a job's id is a UUID")
    near = process.extractOne(path, [operation.path for operation in OPERATIONS], score_cutoff=80, scorer=fuzz.ratio)
    return NotFound(f"there is nothing at this path{f'; did you mean {near[0]}?' if near else ''}")
