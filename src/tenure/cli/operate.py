"""What an operator does: look at the dead, retry, cancel."""

from typing import Annotated

import typer

from tenure.cli.asking import JobId, JsonOption, UrlOption, WaitOption, document, service
from tenure.cli.jobs import CursorOption, KindOption, LimitOption, QueueOption, show_job, show_page
from tenure.cli.output import ago, out, print_json, state

dead_app = typer.Typer(help="Dead letters.", no_args_is_help=True)

VersionOption = Annotated[int | None, typer.Option(help="only if the job is still at this version")]
ReasonOption = Annotated[str | None, typer.Option(help="why; kept in the job's history")]

_MEANING = {
    "prevented": "it was not running, and never will",
    "requested": "it is running; its holder is being told",
    "stopped": "its holder confirmed that it stopped",
    "finished_first": "it finished before it could stop; its result stands",
    "unconfirmed": "its holder vanished: it will not run again, but what it did is not known",
}


@dead_app.command("list")
def dead_list(
    queue: QueueOption = None,
    kind: KindOption = None,
    fingerprint: Annotated[list[str] | None, typer.Option(help="only this kind of error")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List dead jobs, newest first, with what killed them."""
    with service(url) as client:
        page = client.dead_page(limit=limit, cursor=cursor, queue=queue, kind=kind, fingerprint=fingerprint)
    show_page(document(page), json=json)


def retry(
    job_id: JobId,
    delay: Annotated[float | None, typer.Option(help="seconds before it is due")] = None,
    expires_in: Annotated[float | None, typer.Option(help="a new deadline, in seconds from now")] = None,
    version: VersionOption = None,
    reason: ReasonOption = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Retry a dead or failed job, with all its attempts."""
    with service(url) as client:
        job = client.retry(job_id, delay_seconds=delay, expires_in_seconds=expires_in, version=version, reason=reason)
    show_job(document(job), json=json)


def cancel(
    job_id: JobId,
    version: VersionOption = None,
    reason: ReasonOption = None,
    wait: WaitOption = 0.0,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Cancel a job, and say what came of it."""
    with service(url) as client:
        receipt = document(client.cancel(job_id, version=version, reason=reason, wait_seconds=wait))
    if json:
        print_json(receipt)
        return
    out.print(f"[bold]{receipt['outcome']}[/bold]: {_MEANING[receipt['outcome']]}")
    out.print(f"{state(receipt['state'])} at version {receipt['version']}, requested {ago(receipt['requested_at'])}")
