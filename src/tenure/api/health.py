"""Whether the process lives, whether it should be sent requests, and what it understands."""

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.context import ApiContext
from tenure.api.operations import Answer, Operation
from tenure.wire.service import Health, Readiness


async def get_health(context: ApiContext, request: Request) -> Response:
    """Answers as long as the process does; says nothing of its database. For liveness probes."""
    return JsonAnswer({"status": "ok"})


async def get_readiness(context: ApiContext, request: Request) -> Response:
    """Says whether to send requests here, and why not. For readiness probes and load balancers."""
    reasons = await context.services.lifecycle.readiness()
    if reasons:
        return JsonAnswer({"status": "not_ready", "reasons": reasons}, 503, {"Retry-After": "1"})
    return JsonAnswer({"status": "ready", "reasons": []})


async def get_openapi(context: ApiContext, request: Request) -> Response:
    """Describes every operation, with examples (OpenAPI 3.1)."""
    return JsonAnswer(request.app.openapi())


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        endpoint=get_health,
        summary="Liveness",
        tag="service",
        answers=(Answer(status=200, description="Alive.", model=Health, example=examples.HEALTH),),
    ),
    Operation(
        method="GET",
        path="/readyz",
        endpoint=get_readiness,
        summary="Readiness",
        tag="service",
        answers=(
            Answer(status=200, description="Ready.", model=Readiness, example=examples.READY),
            Answer(status=503, description="Not ready, and why.", model=Readiness, example=examples.NOT_READY),
        ),
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        endpoint=get_openapi,
        summary="This description",
        tag="service",
        answers=(Answer(status=200, description="OpenAPI 3.1.", example=examples.OPENAPI),),
    ),
)
