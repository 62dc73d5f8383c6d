"""``tenure demo``: the service's main work, for real, in under a minute; it checks what it shows and stops everything."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Annotated, Any
from uuid import UUID

import typer
import uvloop
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tenure.cli.asking import document
from tenure.cli.output import fact, jobs_table, out, size, span, state, timeline
from tenure.client import Client
from tenure.embedded import EmbeddedPostgres, binaries_at
from tenure.errors import TenureError
from tenure.handlers.sources.sample_orders import load_sample_orders
from tenure.server import Service
from tenure.settings import Settings, load
from tenure.wire.jobs import Event, Job

ROWS = 200_000

_REPORTS = """\
[sources.orders]
url_env = "DEMO_ORDERS_URL"

[reports.orders]
title = "Orders of a period"
source = "orders"
sql = \"\"\"
    SELECT id, order_number, customer, country, status, items, amount, currency, created_at, shipped_on, note
    FROM sample.orders WHERE created_at >= :since ORDER BY id
\"\"\"
count_sql = "SELECT count(*) FROM sample.orders WHERE created_at >= :since"

[reports.orders.columns]
amount = "numeric(12,2)"

[reports.orders.parameters.since]
type = "date"
default = 2000-01-01
"""


_TAKEN = frozenset({"TENURE_DATA_DIR", "TENURE_POSTGRES_BIN"})


class PromiseBroken(Exception):
    """A step did not come out as Tenure promises."""


def demo(
    rows: Annotated[int, typer.Option(help="rows of sample orders", min=1_000, max=5_000_000)] = ROWS,
    keep: Annotated[bool, typer.Option("--keep/--clean", help="keep the demo's data for the next time")] = True,
) -> int:
    """Show it all: a report exported, a dead letter retried, a run cancelled. Then stop everything."""
    began = time.monotonic()
    place = _place()
    folder = place.process.data_dir.absolute() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    out.print(
        Panel(
            "A queue that can always say where a job is, who holds it, and why it died.\n"
            "[dim]Everything below happens now: a real PostgreSQL, a real service, real HTTP.[/dim]",
            title="Tenure",
            border_style="cyan",
            width=86,
        )
    )
    try:
        with _Stage(place, folder, rows) as stage, Client(stage.url) as client:
            out.print(f"The service answers at [bold]{stage.url}[/bold]\n")
            for step in (_export, _dead_letter, _cancellation):
                step(client, folder)
    except PromiseBroken as broken:
        out.print(f"[red]Not as promised:[/red] {escape(str(broken))}")
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    out.print(f"All as promised, in {span(time.monotonic() - began)}. Everything is stopped again.\n")
    out.print("Next: [bold]make serve[/bold] keeps it running and prints a tour by curl; README.md shows the rest.")
    return 0


def _place() -> Settings:
    """Where the demo may put its things; it takes no other setting, to be the same everywhere."""
    return load({name: value for name, value in os.environ.items() if name in _TAKEN})


class _Stage:
    """PostgreSQL with the sample orders, and a service on it, in a thread of its own."""

    def __init__(self, place: Settings, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        binaries = place.process.postgres_bin
        self._postgres = EmbeddedPostgres(
            folder / "postgres", binaries=binaries_at(binaries) if binaries is not None else None
        )
        self._loop = uvloop.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="tenure demo service", daemon=True)
        self._service: Service | None = None
        self.url = ""

    def __enter__(self) -> "_Stage":
        self._thread.start()
        try:
            _timed("PostgreSQL runs", self._postgres.start)
            orders_url = self._postgres.create_database("sample_orders")
            _timed(
                f"{self._rows:,} sample orders are loaded",
                lambda: asyncio.run(load_sample_orders(orders_url, self._rows)),
            )
            _timed("the schema is up to date, the service serves", lambda: self._call(self._serve(orders_url)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._service is not None:
            self._call(self._service.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._postgres.stop()

    async def _serve(self, orders_url: str) -> None:
        self._service = Service(self._settings(orders_url))
        await self._service.start()
        self.url = self._service.url

    def _settings(self, orders_url: str) -> Settings:
        reports = self._folder / "reports.toml"
        reports.write_text(_REPORTS, encoding="utf-8")
        return load(
            {
                "TENURE_DATABASE_URL": self._postgres.url(),
                "TENURE_DATA_DIR": str(self._folder),
                "TENURE_PORT": "0",
                "TENURE_REPORTS": str(reports),
                "TENURE_LEASE_SECONDS": "10",
                "DEMO_ORDERS_URL": orders_url,
            }
        )

    def _call(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout=60)


def _export(client: Client, folder: Path) -> None:
    _title("1", "Export a report", "POST /jobs, once as CSV and once as Parquet")
    for form in ("csv", "parquet"):
        job = client.enqueue(
            "report.export", {"report": "orders", "format": form, "parameters": {"since": "2000-01-01"}}
        )
        done = _watch(client, job.id, f"orders as {form}")
        _promise(done.state == "succeeded", f"the export is {done.state}: {done.last_error}")
        (artifact,) = client.artifacts(job.id)
        target = folder / artifact.name
        with target.open("wb") as file:
            for chunk in client.download(job.id, artifact.name):
                file.write(chunk)
        _promise(target.stat().st_size == artifact.bytes, "the artifact is as long as its receipt says")
        out.print(
            f"    {artifact.rows:,} rows, {size(artifact.bytes)}, sha256 {artifact.sha256[:16]}…\n"
            f"    at {client.url}/jobs/{job.id}/artifacts/{artifact.name}\n"
            f"    fetched to [bold]{_near(target)}[/bold]"
        )
        if form == "csv":
            with target.open(encoding="utf-8") as lines:
                for _ in range(3):
                    out.print(f"    [dim]{escape(lines.readline().rstrip()[:100])}[/dim]")
    out.print()
    out.print(timeline([document(event) for event in client.events(job.id)]))
    out.print()


def _dead_letter(client: Client, _: Path) -> None:
    _title("2", "A job dies, an operator retries it", "two attempts fail; the dead letter says why; the retry succeeds")
    payload = {"duration_ms": 200, "fail": True, "fail_times": 2}
    job = client.enqueue("demo.sleep", payload, max_attempts=2)
    dead = _watch(client, job.id, "a job that fails")
    _promise(dead.state == "dead", f"after its last attempt the job is {dead.state}")
    letters = [document(letter) for letter in client.dead_page(limit=100).items if letter.id == job.id]
    _promise(len(letters) == 1, "the job is among the dead letters")
    out.print(jobs_table(letters))
    client.retry(job.id, reason="the cause is mended")
    done = _watch(client, job.id, "the same job, retried")
    _promise(done.state == "succeeded", f"after the retry the job is {done.state}")
    out.print()
    out.print(timeline([document(event) for event in client.events(job.id)]))
    out.print()


def _cancellation(client: Client, _: Path) -> None:
    _title(
        "3", "Cancel a running job", "the receipt says what is true: requested first, stopped once the holder confirms"
    )
    job = client.enqueue("demo.sleep", {"duration_ms": 60_000})
    _until(lambda: client.get(job.id).state == "running", "the job runs")
    receipt = client.cancel(job.id, reason="changed my mind")
    out.print(f"    receipt: [bold]{receipt.outcome}[/bold], {state(receipt.state)} at version {receipt.version}")
    receipt = client.cancel(job.id, wait_seconds=10)
    out.print(f"    receipt: [bold]{receipt.outcome}[/bold], {state(receipt.state)} at version {receipt.version}")
    _promise(receipt.outcome == "stopped", f"the receipt says {receipt.outcome}")
    out.print()
    out.print(timeline([document(event) for event in client.events(job.id)]))
    out.print()


def _watch(client: Client, job_id: UUID, title: str) -> Job:
    """Follows the job's live events until it has finished: a bar on a terminal, lines elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("[dim]{task.fields[words]}[/dim]"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        bar = bars.add_task(title, total=1.0, words="waiting")
        for item in client.follow(job_id):
            if isinstance(item, Event):
                bars.update(bar, words=f"{item.type} {fact(document(item))}")
            else:
                bars.update(bar, completed=item.fraction or 0.0, words=item.message or "")
    done = client.get(job_id, wait_seconds=5)
    took = span((done.updated_at - done.created_at).total_seconds())
    out.print(f"  {'✓' if done.state == 'succeeded' else '•'} {title}: {state(done.state)} in {took}")
    return done


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        _promise(time.monotonic() < end, f"{what} within 20 s")
        time.sleep(0.02)


def _timed(what: str, work: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        work()
    except TenureError as error:
        raise PromiseBroken(f"{what}: {error}") from error
    out.print(f"  ✓ {what} [dim]({span(time.monotonic() - began)})[/dim]")


def _title(number: str, title: str, words: str) -> None:
    out.print(f"[bold cyan]{number}. {title}[/bold cyan]  [dim]{words}[/dim]")


def _promise(holds: bool, what: str) -> None:
    if not holds:
        raise PromiseBroken(what)


def _near(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
