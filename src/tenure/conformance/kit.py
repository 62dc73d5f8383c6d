"""Runs scenarios, a few beside each other, and says what came of each."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tenure.conformance.bench import RuleBroken, Timing, bench
from tenure.conformance.scenarios import SCENARIOS, Scenario
from tenure.conformance.service import TestService
from tenure.embedded import EmbeddedPostgres
from tenure.errors import ConfigurationError
from tenure.settings import PREFIX, load
from tenure.store.database import Database, checked_schema

_BESIDE_EACH_OTHER = 4
"""Scenarios mostly wait; more at once would make two cores late, and late is what they judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a scenario. ``detail`` says what broke the rule, ``output`` is the end of what the worker wrote."""

    scenario: str
    rule: str
    passed: bool
    detail: str | None
    seconds: float
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All verdicts, in the order of the scenarios."""

    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)


async def verify(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    lease_seconds: float = 3.0,
    patience_seconds: float = 15.0,
    only: Sequence[str] = (),
    on_verdict: Callable[[Verdict], Any] = lambda _: None,
) -> Report:
    """Puts the worker that ``command`` starts through the scenarios (all, or ``only`` those named).

    A database that ``environment`` names with TENURE_DATABASE_URL is used by way of a schema that is dropped afterwards;
    without one an embedded PostgreSQL is started in a temporary directory. Raises ConfigurationError for an unknown
    scenario or a command that does not exist.
    """
    chosen = _chosen(only)
    if not command or shutil.which(command[0], path=environment.get("PATH")) is None:
        raise ConfigurationError(f"there is no program {command[0]!r} to start" if command else "no COMMAND was given")
    timing = Timing(lease_seconds=lease_seconds, patience_seconds=patience_seconds)
    with tempfile.TemporaryDirectory(prefix="tenure-verify-", ignore_cleanup_errors=True) as folder:
        async with _database(environment, Path(folder)) as variables, _service(variables) as eyes:
            turn = asyncio.Semaphore(_BESIDE_EACH_OTHER)
            settings = load(variables).database
            async with await Database.open(settings, application_name="tenure verify-worker") as database:

                async def judged(scenario: Scenario) -> Verdict:
                    async with turn:
                        verdict = await _judge(
                            scenario, eyes, database, variables, environment, command, timing, Path(folder)
                        )
                    on_verdict(verdict)
                    return verdict

                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(judged(scenario)) for scenario in chosen]
            return Report(verdicts=tuple(task.result() for task in tasks))


def _chosen(only: Sequence[str]) -> list[Scenario]:
    known = [scenario.name for scenario in SCENARIOS]
    for name in only:
        if name not in known:
            raise ConfigurationError(f"there is no scenario {name!r}; there are: {', '.join(known)}")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


async def _judge(
    scenario: Scenario,
    eyes: TestService,
    database: Database,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    command: Sequence[str],
    timing: Timing,
    folder: Path,
) -> Verdict:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    service = TestService(variables) if scenario.stops_service else eyes
    if service is not eyes:
        await service.start()
    detail, output = None, ""
    try:
        async with bench(
            service,
            eyes,
            database,
            queue=f"verify.{scenario.name}",
            timing=timing,
            log=folder / f"{scenario.name}.log",
            command=command,
            environment=environment,
        ) as own:
            try:
                await scenario.run(own)
            except RuleBroken as broken:
                detail = str(broken)
            except httpx.HTTPError as error:
                detail = f"the kit itself could not ask the service: {error}"
            output = own.output()
    finally:
        if service is not eyes:
            await service.stop()
    return Verdict(
        scenario=scenario.name,
        rule=scenario.rule,
        passed=detail is None,
        detail=detail,
        seconds=loop.time() - began_at,
        output=output,
    )


@asynccontextmanager
async def _database(environment: Mapping[str, str], folder: Path) -> AsyncIterator[dict[str, str]]:
    """The variables of a service on a schema, or a PostgreSQL, that nobody else uses."""
    chosen = load(environment)
    schema = f"tenure_verify_{secrets.token_hex(6)}"
    # What the worker's environment says of how a service is to be is not meant for this one.
    kept = {name: value for name, value in environment.items() if name.startswith(f"{PREFIX}DATABASE_")}
    variables = {**kept, "TENURE_DATABASE_SCHEMA": schema, "TENURE_DATA_DIR": str(folder)}
    if chosen.database.url:
        try:
            yield variables
        finally:
            async with (
                await Database.open(load(variables).database, application_name="tenure verify-worker") as database,
                database.connection() as connection,
            ):
                await connection.execute(f'DROP SCHEMA IF EXISTS "{checked_schema(schema)}" CASCADE')
        return
    server = EmbeddedPostgres(folder / "postgres")
    try:
        yield {**variables, "TENURE_DATABASE_URL": await asyncio.to_thread(server.start)}
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def _service(variables: Mapping[str, str]) -> AsyncIterator[TestService]:
    service = TestService(variables)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
