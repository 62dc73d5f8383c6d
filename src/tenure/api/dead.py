"""The operator's inbox: jobs that nobody will try again by himself."""

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.context import ApiContext
from tenure.api.jobs import page_of_jobs
from tenure.api.operations import Answer, Operation
from tenure.api.query import read_query
from tenure.errors import DatabaseUnavailable
from tenure.jobs.model import State
from tenure.store.inspect import JobFilter
from tenure.wire.jobs import DeadQuery, JobPage


async def list_dead(context: ApiContext, request: Request) -> Response:
    """Lists dead jobs, newest first: as `GET /jobs?state=dead`, and by when they died."""
    query = read_query(request, DeadQuery)
    wanted = JobFilter(
        states=(State.DEAD,),
        queues=tuple(query.queue),
        kinds=tuple(query.kind),
        tags=tuple(query.tag),
        concurrency_keys=tuple(query.concurrency_key),
        fingerprints=tuple(query.fingerprint),
        created_after=query.created_after,
        created_before=query.created_before,
        finished_after=query.died_after,
        finished_before=query.died_before,
    )
    return await page_of_jobs(context, wanted, limit=query.limit, cursor=query.cursor, include=query.include)


OPERATIONS = (
    Operation(
        method="GET",
        path="/dead",
        endpoint=list_dead,
        summary="List dead jobs",
        tag="dead letters",
        query=DeadQuery,
        answers=(Answer(status=200, description="A page.", model=JobPage, example=examples.DEAD_PAGE),),
        problems=(DatabaseUnavailable,),
    ),
)
