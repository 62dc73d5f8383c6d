"""The composition root: one service, that is the database, the API, the workers and the maintenance of one process.

How it stops (`Service.stop`), in this order, which is also what SIGTERM and SIGINT do:

1. readiness turns red, the workers claim nothing more, waits end, and enqueues and claims are answered 503 with
   Retry-After: another service takes them;
2. after the readiness delay, in which load balancers notice, the listener closes; heartbeats and settles are served until
   then;
3. running handlers get the grace time, then their tasks are cancelled, and their leases released, unspent;
4. maintenance, wake-ups and the pool end, and at last the embedded PostgreSQL, if this process started it.

A second signal ends handlers at once and releases what they held. Nothing is lost in either case: what could not be
released is taken back when its lease ends.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn

from tenure.api.app import create_app
from tenure.api.services import ServiceLifecycle, Services
from tenure.artifacts import ArtifactStore, open_artifact_store
from tenure.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries_at
from tenure.errors import ConfigurationError, DatabaseUnavailable
from tenure.handlers import ReportCatalog, builtin_registry
from tenure.jobs.model import DEFAULT_TENANT
from tenure.jobs.retry import RetryPolicy
from tenure.maintenance import loop as maintenance_loop
from tenure.maintenance.roster import roster
from tenure.server.child import ParentLine
from tenure.server.listening import HttpServer, listen, refuse_open_door, url_of
from tenure.server.running import new_worker_id, signals
from tenure.settings import Settings
from tenure.store import schema
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.worker.attempt import AttemptLimits
from tenure.worker.broker import DatabaseBroker
from tenure.worker.registry import JobRegistry
from tenure.worker.runtime import Worker

logger = logging.getLogger(__name__)

_IN_FLIGHT_SECONDS = 10
"""How long requests under way may take after the listener closed."""

_RETRY_SECONDS = 1.0
_POSTGRES_LOOK_SECONDS = 1.0

_IS_WRITABLE = "SELECT NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::boolean AS writable"


class Service:
    """One process's part of Tenure. ``start`` returns once it serves; it may still wait for its database (see readiness)."""

    def __init__(
        self,
        settings: Settings,
        *,
        registry: JobRegistry | None = None,
        workers: bool = True,
        api: bool = True,
        listener: socket.socket | None = None,
    ) -> None:
        self.settings = settings
        self.lifecycle = ServiceLifecycle(why_not_ready=self._readiness)
        self._extra_registry = registry
        self._with_workers = workers
        self._with_api = api
        self._embedded: EmbeddedPostgres | None = None
        self._database: Database | None = None
        self._worker: Worker | None = None
        self._http: HttpServer | None = None
        self._socket = listener
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._not_ready: str | None = "starting"
        self._stopping = False
        self._hurried = asyncio.Event()
        self._ended = asyncio.Event()
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        """Where the API is served, once started."""
        assert self._socket is not None, "the service has no API, or has not started"
        return url_of(self._socket)

    @property
    def database(self) -> Database:
        """The open database, once started."""
        assert self._database is not None, "the service has not started"
        return self._database

    @property
    def database_url(self) -> str:
        """The URL of the database in use."""
        return self.database.settings.url

    @property
    def worker(self) -> Worker | None:
        """The in-process worker, once the database could be reached."""
        return self._worker

    async def create_database(self, name: str) -> str:
        """Makes a database beside Tenure's own on the embedded server, if it is not there; returns its URL."""
        if self._embedded is None:
            raise ConfigurationError("only the embedded PostgreSQL makes databases; TENURE_DATABASE_URL is set")
        return await asyncio.to_thread(self._embedded.create_database, name)

    async def start(self) -> None:
        """Raises ConfigurationError, SchemaMismatch or EmbeddedPostgresError; an unreachable database is waited for."""
        settings = self.settings
        if self._with_api:
            refuse_open_door(settings)
            self._socket = self._socket or listen(settings.http.host, settings.http.port)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        url = settings.database.url
        if not url:
            self._embedded = embedded_postgres(settings)
            url = await asyncio.to_thread(self._embedded.start)
            self._spawn("postgres", self._keep_postgres(self._embedded))
        artifacts = open_artifact_store(settings.reports, settings.process.data_dir)
        if self._with_workers:
            await artifacts.check_writable()
        registry = self._registry(artifacts, url)
        database_settings = settings.database.model_copy(update={"url": url})
        self._database = database = await Database.open(database_settings, application_name="tenure serve")
        listener = Listener(database)
        bell = Bell(database, listener)
        brought_up = asyncio.Event()
        self._spawn("schema", self._bring_up(database, brought_up, registry, bell, listener, artifacts))
        if self._with_api:
            services = Services(
                database=database,
                bell=bell,
                listener=listener,
                registry=registry,
                settings=settings,
                artifacts=artifacts,
                lifecycle=self.lifecycle,
            )
            await self._serve_http(services)
        await self._first_try(brought_up)
        gc.collect()
        # Requests that wait in the middle survive into the old generation; without this, full collections over all that
        # was imported make up most of the slowest answers.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    async def _keep_postgres(self, server: EmbeddedPostgres) -> None:
        """Starts the embedded server again when it has died: it is ours, nobody else would."""
        while True:
            await asyncio.sleep(_POSTGRES_LOOK_SECONDS)
            if server.postmaster_pid is not None:
                continue
            logger.error("the embedded PostgreSQL has died (see %s); starting it again", server.log_path)
            try:
                await asyncio.to_thread(server.start)
                logger.info("the embedded PostgreSQL runs again")
            except EmbeddedPostgresError as error:
                logger.error("the embedded PostgreSQL does not start: %s", error)

    async def _first_try(self, brought_up: asyncio.Event) -> None:
        task = self._tasks["schema"]
        waiter = asyncio.ensure_future(brought_up.wait())
        try:
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _bring_up(
        self,
        database: Database,
        tried: asyncio.Event,
        registry: JobRegistry,
        bell: Bell,
        listener: Listener,
        artifacts: ArtifactStore,
    ) -> None:
        """Waits for the database, sees to its schema, then starts what works on it."""
        while True:
            try:
                if self.settings.process.auto_migrate:
                    before, after = await schema.migrate(database.settings)
                    if before != after:
                        logger.info("schema %s migrated from %s to %s", database.schema, before or "nothing", after)
                await schema.check(database)
                break
            except DatabaseUnavailable as error:
                if self._not_ready != error.detail:
                    logger.warning("waiting for the database: %s", error.detail)
                self._not_ready = error.detail
                tried.set()
                await asyncio.sleep(_RETRY_SECONDS)
        self._spawn("wake-ups", listener.run())
        self._spawn("bell", bell.run())
        if self.settings.maintenance.enabled:
            tasks = roster(database=database, bell=bell, artifacts=artifacts, settings=self.settings.maintenance)
            self._spawn("maintenance", maintenance_loop.run(tasks))
        if self._with_workers:
            self._worker = self._make_worker(database, registry, bell, listener)
            self._spawn("worker", self._worker.run())
        self._not_ready = None
        logger.info("ready")
        tried.set()

    def _make_worker(self, database: Database, registry: JobRegistry, bell: Bell, listener: Listener) -> Worker:
        settings = self.settings.workers
        worker_id = settings.worker_id or new_worker_id()
        broker = DatabaseBroker(
            database,
            worker_id=worker_id,
            tenant=DEFAULT_TENANT,
            default_lease_seconds=self.settings.jobs.lease_seconds,
            policy_of=registry.policy_of,
            bell=bell,
            listener=listener,
            capacity=settings.slots,
        )
        return Worker(
            broker,
            registry,
            worker_id=worker_id,
            slots=settings.slots,
            queues=settings.queues,
            poll_seconds=settings.poll_seconds,
            shutdown_grace_seconds=settings.shutdown_grace_seconds,
            limits=AttemptLimits(result_bytes=self.settings.limits.result_bytes),
        )

    def _registry(self, artifacts: ArtifactStore, database_url: str) -> JobRegistry:
        reports = None
        if self.settings.reports.reports_file is not None:
            # A report may read Tenure's own database, wherever that is: also the embedded one.
            environment = {**self.settings.environment, "TENURE_DATABASE_URL": database_url}
            reports = ReportCatalog.load(self.settings.reports.reports_file, environment=environment)
        registry = builtin_registry(reports=reports, artifacts=artifacts)
        if self._extra_registry is not None:
            registry.include(self._extra_registry)
        jobs = self.settings.jobs
        registry.default_policy = RetryPolicy(
            base_seconds=jobs.backoff_base_seconds,
            factor=jobs.backoff_factor,
            cap_seconds=jobs.backoff_cap_seconds,
        )
        return registry

    async def _serve_http(self, services: Services) -> None:
        http = self.settings.http
        assert self._socket is not None
        self._http = server = HttpServer(
            uvicorn.Config(
                create_app(services),
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=http.keep_alive_seconds,
                timeout_graceful_shutdown=_IN_FLIGHT_SECONDS,
                ws="none",
            )
        )
        self._spawn("http", server.serve(sockets=[self._socket]))
        while not server.started:
            if self._tasks["http"].done():
                await self._tasks["http"]
                raise ConfigurationError(f"cannot serve on {http.host}:{http.port}")
            await asyncio.sleep(0.005)

    async def _readiness(self) -> list[str]:
        if self._stopping:
            return ["stopping"]
        if self._not_ready is not None:
            return [self._not_ready]
        try:
            async with self.database.connection() as connection:
                row = await connection.fetchrow(_IS_WRITABLE)
        except DatabaseUnavailable as error:
            return [error.detail]
        return [] if row is not None and row["writable"] else ["the database is read-only"]

    async def stop(self, *, now: bool = False) -> None:
        """Stops everything in the order that the module's docstring tells. Harmless when repeated."""
        self._stopping = True
        # First of all: it would start workers and maintenance behind our back.
        await self._ended_early("schema")
        if self._worker is not None:
            if now:
                self._worker.stop_now()
            else:
                self._worker.drain()
        self.lifecycle.draining.set()
        if self._http is not None:
            if not now:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurried.wait(), self.settings.http.readiness_delay_seconds)
            self._http.should_exit = True
            self._http.force_exit = now
        for name in ("http", "worker"):
            await self._finished(name)
        for name in ("maintenance", "bell", "wake-ups", "postgres"):
            await self._ended_early(name)
        if self._socket is not None:
            self._socket.close()
        if self._database is not None:
            await self._database.close()
            self._database = None
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)
            self._embedded = None

    def hurry(self) -> None:
        """The second signal: handlers are cancelled and their leases released at once."""
        self._hurried.set()
        if self._worker is not None:
            self._worker.stop_now()
        if self._http is not None:
            self._http.force_exit = True

    async def run_until_signalled(
        self, *, started: Callable[[], object] = lambda: None, line: ParentLine | None = None
    ) -> int:
        """Starts, and serves until SIGTERM or SIGINT, or until something broke for good; returns the exit code.

        ``started`` is called once it serves. A signal before that ends the start, in order. ``line``: to the supervisor
        of this process, whose orders are as good as signals. Raises what `start` raises.
        """
        with signals(line) as signalled:
            got = asyncio.ensure_future(signalled.get())
            if not await self._started_before(got):
                return 0
            started()
            if line is not None:
                line.tell_ready()
            ended = asyncio.ensure_future(self._ended.wait())
            waited: set[asyncio.Future[Any]] = {got, ended, self._broken}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                logger.error("stopping: %s", self._broken.result())
            elif got.done():
                logger.info("stopping on %s; a second one ends it at once", got.result().name)
            ended.cancel()
            got.cancel()
            stopping = asyncio.ensure_future(self.stop())
            while not stopping.done():
                again = asyncio.ensure_future(signalled.get())
                waited = {stopping, again}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if again.done():
                    logger.warning("second signal: ending at once")
                    self.hurry()
                again.cancel()
            await stopping
        return 1 if self._broken.done() else 0

    async def _started_before(self, signalled: "asyncio.Future[signal.Signals]") -> bool:
        """Starts; False when the signal came first, and all that was begun is stopped again."""
        starting = asyncio.ensure_future(self.start())
        waited: set[asyncio.Future[Any]] = {signalled, starting}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                return True
            logger.info("stopping on %s, in the middle of the start", signalled.result().name)
            return False
        finally:
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})
            if starting.cancelled() or starting.exception() is not None:
                signalled.cancel()

    def _spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work, name=f"tenure: {name}")
        task.add_done_callback(lambda done: self._on_done(name, done))
        self._tasks[name] = task

    def _on_done(self, name: str, task: "asyncio.Task[Any]") -> None:
        """No loop ends silently: one that ends by itself ends the service."""
        if task.cancelled() or self._stopping or self._broken.done():
            return
        error = task.exception()
        if isinstance(error, ConfigurationError):  # for the operator: a sentence, no trace
            self._broken.set_result(str(error))
        elif error is not None:
            logger.error("%s failed: %s", name, error, exc_info=error)
            self._broken.set_result(f"{name} failed: {error}")
        elif name == "worker":
            # An operator told it to end: a process that is nothing else ends with it, a service goes on without.
            logger.info("the worker has ended")
            if not self._with_api:
                self._ended.set()
        elif name != "schema":
            self._broken.set_result(f"{name} ended by itself")

    async def _ended_early(self, name: str) -> None:
        if (task := self._tasks.get(name)) is not None:
            task.cancel()
            await self._finished(name)

    async def _finished(self, name: str) -> None:
        task = self._tasks.get(name)
        if task is not None:
            await asyncio.wait({task})
            if task.cancelled() or (error := task.exception()) is None or isinstance(error, ConfigurationError):
                return
            logger.error("%s failed while stopping: %s", name, error)


def embedded_postgres(settings: Settings) -> EmbeddedPostgres:
    """The PostgreSQL of the data directory, not started."""
    binaries = settings.process.postgres_bin
    return EmbeddedPostgres(
        settings.process.data_dir.absolute() / "postgres",
        binaries=binaries_at(binaries) if binaries is not None else None,
    )
