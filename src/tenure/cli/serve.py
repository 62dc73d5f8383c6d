"""``tenure serve``, ``tenure worker``, ``tenure migrate``."""

import asyncio
from typing import Annotated
from urllib.parse import urlsplit

import typer

from tenure.cli.configured import configured, log_to_stderr
from tenure.cli.output import out
from tenure.cli.tour import tour
from tenure.errors import ConfigurationError, DatabaseUnavailable
from tenure.handlers.demo_sleep import register_demo_sleep
from tenure.server import Service, embedded_postgres, new_worker_id, run
from tenure.settings import DatabaseSettings, Settings
from tenure.store import schema
from tenure.worker.attempt import AttemptLimits
from tenure.worker.http_broker import HttpBroker
from tenure.worker.registry import JobRegistry, load_registry
from tenure.worker.runtime import Worker
from tenure.worker.standalone import run_until_signalled

AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:REGISTRY", help="your handlers")]


def serve(
    workers: Annotated[bool, typer.Option("--workers/--no-workers", help="run jobs in this process, too")] = True,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0 takes a free one")] = None,
    app: AppOption = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="let other machines in although nobody signs in")
    ] = False,
    show_tour: Annotated[bool, typer.Option("--tour", help="print a tour by curl once it serves")] = False,
) -> int:
    """Run the API, workers and maintenance: on TENURE_DATABASE_URL, else on an embedded PostgreSQL."""
    settings = configured(HOST=host, PORT=port, APP=app, INSECURE_NO_AUTH=True if insecure_no_auth else None)
    log_to_stderr(settings)
    registry = _registry(settings)

    async def serving() -> int:
        service = Service(settings, registry=registry, workers=workers)

        def say_where() -> None:
            out.print(f"Tenure serves at [bold]{service.url}[/bold]" + ("" if workers else " (no workers here)"))
            if show_tour:
                out.print(tour(service.url))
            out.print("[dim]Ctrl-C stops it in order: running jobs get their grace, their leases are released.[/dim]")

        return await service.run_until_signalled(started=say_where)

    return run(serving)


def worker(
    app: AppOption = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="reach the service over HTTP alone")] = None,
) -> int:
    """Run workers alone, on the database that TENURE_DATABASE_URL names; with --url over HTTP, without a database."""
    settings = configured(APP=app, URL=url)
    if url is not None:
        log_to_stderr(settings)
        return run(lambda: _work_over_http(settings))
    if not settings.database.url:
        raise ConfigurationError(
            "a worker needs the service's database: set TENURE_DATABASE_URL "
            "(`tenure database-url` prints that of a service here), or reach the service over HTTP with --url"
        )
    log_to_stderr(settings)
    registry = _registry(settings)

    async def working() -> int:
        return await Service(settings, registry=registry, api=False).run_until_signalled()

    return run(working)


async def _work_over_http(settings: Settings) -> int:
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
        out.print(f"Worker [bold]{worker_id}[/bold] works for [bold]{settings.client.url}[/bold]")
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
