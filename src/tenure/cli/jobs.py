"""``tenure jobs …``: enqueue, list, read, follow, fetch what they made."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tenure.cli.asking import JobId, JsonOption, UrlOption, WaitOption, document, service
from tenure.cli.output import ago, jobs_table, out, plain, print_json, print_json_line, remark, size, state, timeline
from tenure.errors import TenureError
from tenure.wire.json import parse

app = typer.Typer(help="Enqueue, list, read and follow jobs.", no_args_is_help=True)

StateOption = Annotated[list[str] | None, typer.Option("--state", help="only this state; repeat for more")]
QueueOption = Annotated[list[str] | None, typer.Option("--queue", help="only this queue; repeat for more")]
KindOption = Annotated[list[str] | None, typer.Option("--kind", help="only this kind; repeat for more")]
LimitOption = Annotated[int, typer.Option(help="how many", min=1, max=500)]
CursorOption = Annotated[str | None, typer.Option(help="the next_cursor of the page before")]


@app.command("list")
def list_(
    state: StateOption = None,
    queue: QueueOption = None,
    kind: KindOption = None,
    tag: Annotated[list[str] | None, typer.Option(help="only with this tag; repeat for more")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List jobs, newest first."""
    with service(url) as client:
        page = client.page(limit=limit, cursor=cursor, state=state, queue=queue, kind=kind, tag=tag)
    show_page(document(page), json=json)


@app.command("enqueue")
def enqueue(
    kind: Annotated[str, typer.Argument(help="what is to be done")],
    payload: Annotated[str, typer.Argument(help="JSON, or - to read it from standard input")] = "null",
    queue: Annotated[str | None, typer.Option(help="default: the kind's")] = None,
    priority: Annotated[int | None, typer.Option(help="-100 … 100, higher first")] = None,
    delay: Annotated[float | None, typer.Option(help="seconds before it is due")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="attempts before it is dead")] = None,
    key: Annotated[str | None, typer.Option(help="idempotency key")] = None,
    wait: WaitOption = 0.0,
    json: JsonOption = False,
    url: UrlOption = None,
) -> int:
    """Enqueue one job."""
    value = _payload(payload)
    with service(url) as client:
        job = document(
            client.enqueue(
                kind,
                value,
                wait_seconds=wait,
                queue=queue,
                priority=priority,
                delay_seconds=delay,
                max_attempts=max_attempts,
                idempotency_key=key,
            )
        )
    show_job(job, json=json)
    return 1 if job["state"] in {"dead", "failed"} else 0


@app.command("get")
def get(job_id: JobId, wait: WaitOption = 0.0, json: JsonOption = False, url: UrlOption = None) -> None:
    """Read one job."""
    with service(url) as client:
        job = document(client.get(job_id, wait_seconds=wait))
    show_job(job, json=json)


@app.command("events")
def events(job_id: JobId, json: JsonOption = False, url: UrlOption = None) -> None:
    """Show a job's history."""
    with service(url) as client:
        found = [document(event) for event in client.events(job_id)]
    if json:
        print_json({"items": found})
    else:
        out.print(timeline(found))


@app.command("wait")
def wait(job_id: JobId, json: JsonOption = False, url: UrlOption = None) -> int:
    """Wait until a job has finished, however long that is; the exit code is 0 only if it succeeded."""
    with service(url) as client:
        for _ in client.follow(job_id):
            pass
        job = document(client.get(job_id))
    show_job(job, json=json)
    return 0 if job["state"] == "succeeded" else 1


@app.command("follow")
def follow(
    job_id: JobId,
    json: Annotated[bool, typer.Option("--json", help="a JSON object a line, for programs")] = False,
    url: UrlOption = None,
) -> None:
    """Show a job's history as it happens, until it has finished."""
    with service(url) as client:
        for item in client.follow(job_id):
            data = document(item)
            kind = data.setdefault("type", "progress")
            if json:
                print_json_line(data)
            elif kind == "progress":
                words = data.get("message") or data.get("fraction")
                out.print(f"[dim]{ago(data['at']):>10}  progress {plain(words)}[/dim]")
            else:
                out.print(f"{ago(data['at']):>10}  {kind} → {state(data['state'])}")


@app.command("artifacts")
def artifacts(
    job_id: JobId,
    name: Annotated[str | None, typer.Argument(help="the one to fetch")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="file or folder to write to; default: here")] = None,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List what a job made, or fetch one of them."""
    with service(url) as client:
        if name is None:
            found = [document(artifact) for artifact in client.artifacts(job_id)]
            if json:
                print_json({"items": found})
            for item in [] if json else found:
                out.print(f"{plain(item['name'])}  {size(item['bytes'])}  {item['rows']} rows  sha256 {item['sha256']}")
            return
        target = (to or Path()) / Path(name).name if to is None or to.is_dir() else to
        _write(client.download(job_id, name), target)
        out.print(f"wrote {plain(target)} ({size(target.stat().st_size)})")


def _write(chunks: Iterator[bytes], target: Path) -> None:
    """The file appears whole or not at all; nothing is touched before the first bytes are there."""
    first = next(chunks, b"")
    partial = target.with_name(f"{target.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(first)
            for chunk in chunks:
                file.write(chunk)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _payload(text: str) -> Any:
    try:
        return parse(sys.stdin.buffer.read() if text == "-" else text)
    except TenureError as error:
        raise typer.BadParameter(f"the payload: {error.detail}") from None


def show_page(page: dict[str, Any], *, json: bool) -> None:
    """A page of jobs for people or programs."""
    if json:
        print_json(page)
        return
    if not page["items"]:
        out.print("[dim]none[/dim]")
        return
    out.print(jobs_table(page["items"]))
    if page["next_cursor"]:
        out.print(f"[dim]more: --cursor {page['next_cursor']}[/dim]")


def show_job(job: dict[str, Any], *, json: bool) -> None:
    """One job for people or programs."""
    if json:
        print_json(job)
        return
    out.print(f"[bold]{job['id']}[/bold]  {plain(job['kind'])} in {plain(job['queue'])}  {state(job['state'])}", end="")
    out.print(f"  attempt {job['attempts']} of {job['max_attempts']}, version {job['version']}")
    if words := remark(job):
        out.print(plain(words))
    if job["result"] is not None:
        out.print("result:", end=" ")
        print_json(job["result"])
