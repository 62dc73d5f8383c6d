"""``tenure serve``, ``tenure worker``, ``tenure migrate``."""

import asyncio
import socket
from typing import Annotated
from urllib.parse import urlsplit

import typer

from tenure.cli.configured import configured, log_to_stderr
from tenure.cli.output import out
from tenure.cli.tour import tour
from tenure.errors import ConfigurationError, DatabaseUnavailable
from tenure.handlers.demo_sleep import register_demo_sleep
from tenure.server import (
    ParentLine,
    Service,
    Supervisor,
    embedded_postgres,
    listen,
    new_worker_id,
    refuse_open_door,
    run,
    url_of,
)
from tenure.settings import PREFIX, DatabaseSettings, Settings
from tenure.store import schema
from tenure.worker.attempt import AttemptLimits
from tenure.worker.http_broker import HttpBroker
from tenure.worker.registry import JobRegistry, load_registry
from tenure.worker.runtime import Worker
from tenure.worker.standalone import run_until_signalled

ProcessesOption = Annotated[int | None, typer.Option(min=1, help="how many processes to run under this one")]
ParentLineOption = Annotated[int | None, typer.Option("--parent-line", hidden=True)]
"""Given by a supervisor to its children: the descriptor of the line between them."""

AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:REGISTRY", help="your handlers")]


def serve(
    workers: Annotated[bool, typer.Option("--workers/--no-workers", help="run jobs in this process, too")] = True,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0 takes a free one")] = None,
    app: AppOption = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="let other machines in although nobody signs in")
    ] = False,
    processes: ProcessesOption = None,
    show_tour: Annotated[bool, typer.Option("--tour", help="print a tour by curl once it serves")] = False,
    parent_line: ParentLineOption = None,
    listener: Annotated[int | None, typer.Option("--listener", hidden=True)] = None,
) -> int:
    """Run the API, workers and maintenance: on TENURE_DATABASE_URL, else on an embedded PostgreSQL."""
    insecure = True if insecure_no_auth else None
    settings = configured(HOST=host, PORT=port, APP=app, INSECURE_NO_AUTH=insecure, PROCESSES=processes)
    log_to_stderr(settings)

    def say_where(url: str) -> None:
        out.print(f"Tenure serves at [bold]{url}[/bold]" + ("" if workers else " (no workers here)"))
        if show_tour:
            out.print(tour(url))
        out.print("[dim]Ctrl-C stops it in order: running jobs get their grace, their leases are released.[/dim]")

    async def supervising() -> int:
        refuse_open_door(settings)
        shared = listen(settings.http.host, settings.http.port)
        url = url_of(shared)
        supervisor = Supervisor(
            ["serve", *([] if workers else ["--no-workers"])],
            processes=settings.process.processes,
            environment=_environment(settings, HOST=host, APP=app, INSECURE_NO_AUTH=insecure),
            listener=shared,
            postgres=None if settings.database.url else embedded_postgres(settings),
        )
        return await supervisor.run(started=lambda: say_where(url))

    async def serving() -> int:
        given = None if listener is None else socket.socket(fileno=listener)
        service = Service(settings, registry=registry, workers=workers, listener=given)
        if parent_line is not None:
            return await service.run_until_signalled(line=ParentLine(parent_line))
        return await service.run_until_signalled(started=lambda: say_where(service.url))

    if settings.process.processes > 1:
        return run(supervising)
    registry = _registry(settings)
    return run(serving)


def worker(
    app: AppOption = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="reach the service over HTTP alone")] = None,
    processes: ProcessesOption = None,
    parent_line: ParentLineOption = None,
) -> int:
    """Run workers alone, on the database that TENURE_DATABASE_URL names; with --url over HTTP, without a database."""
    settings = configured(APP=app, URL=url, PROCESSES=processes)
    log_to_stderr(settings)
    line = None if parent_line is None else ParentLine(parent_line)
    if url is None and not settings.database.url:
        raise ConfigurationError(
            "a worker needs the service's database: set TENURE_DATABASE_URL "
            "(`tenure database-url` prints that of a service here), or reach the service over HTTP with --url"
        )

    async def supervising() -> int:
        arguments = ["worker", *([] if url is None else ["--url", url])]
        supervisor = Supervisor(
            arguments, processes=settings.process.processes, environment=_environment(settings, APP=app)
        )
        return await supervisor.run(started=lambda: out.print(f"{settings.process.processes} workers work"))

    async def working() -> int:
        return await Service(settings, registry=registry, api=False).run_until_signalled(line=line)

    if settings.process.processes > 1:
        return run(supervising)
    if url is not None:
        return run(lambda: _work_over_http(settings, line))
    registry = _registry(settings)
    return run(working)


def _environment(settings: Settings, **overrides: object) -> dict[str, str]:
    """What a child of this process reads: the same settings, with what the command line said."""
    said = {f"{PREFIX}{name}": str(value) for name, value in overrides.items() if value is not None}
    return {**settings.environment, **said}


async def _work_over_http(settings: Settings, line: ParentLine | None) -> int:
    # No report.export: it publishes in a transaction of Tenure's own database.
    registry = JobRegistry()
    register_demo_sleep(registry)
    if (own := _registry(settings)) is not None:
        registry.include(own)
    workers = settings.workers
    worker_id = workers.worker_id or new_worker_id()
    async with HttpBroker(settings.client.url, worker_id=worker_id, capacity=workers.slots) as broker:
        worker = Worker(
            broker,
            registry,
            worker_id=worker_id,
            slots=workers.slots,
            queues=workers.queues,
            poll_seconds=workers.poll_seconds,
            shutdown_grace_seconds=workers.shutdown_grace_seconds,
            limits=AttemptLimits(result_bytes=settings.limits.result_bytes),
        )
        if line is None:
            out.print(f"Worker [bold]{worker_id}[/bold] works for [bold]{settings.client.url}[/bold]")
            await run_until_signalled(worker)
            return 0
        line.tell_ready()
        with line.heard(drain=worker.drain, hurry=worker.stop_now):
            await run_until_signalled(worker)
    return 0


def migrate() -> int:
    """Bring the schema up to date; safe when several processes do it at once, and while a service runs."""
    settings = configured()
    log_to_stderr(settings)
    if settings.database.url:
        before, after = _migrate(settings.database)
    else:
        with embedded_postgres(settings) as server:
            before, after = _migrate(settings.database.model_copy(update={"url": server.url()}))
    if before == after:
        out.print(f"schema {settings.database.schema_name} is at {after} already")
    else:
        out.print(f"schema {settings.database.schema_name}: {before or 'nothing'} → {after}")
    return 0


def _migrate(database: DatabaseSettings) -> tuple[str | None, str]:
    try:
        return asyncio.run(schema.migrate(database))
    except DatabaseUnavailable as error:
        there = urlsplit(database.url)
        raise DatabaseUnavailable(
            f"{error.detail}: is PostgreSQL running at {there.netloc.rpartition('@')[2] or 'the address'}, with a "
            f"database {there.path.lstrip('/') or there.username!r}? TENURE_DATABASE_URL says where it is"
        ) from error


def _registry(settings: Settings) -> JobRegistry | None:
    return load_registry(settings.workers.app) if settings.workers.app else None
