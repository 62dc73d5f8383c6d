"""The compose file: each service's command, run as a process with the environment that the file gives it."""

import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.settings import DAY_SECONDS, load
from tests.story.harness import ROOT, Process, Stage, answers, free_port, submitter
from tests.waiting import until

pytestmark = pytest.mark.story

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The file's services, with its variables' defaults put in."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(_VARIABLE.sub(lambda found: found[2], text))["services"])


def settings_of(service: dict[str, Any]) -> dict[str, str]:
    """Its variables without their prefix."""
    return {name.removeprefix("TENURE_"): value for name, value in service["environment"].items()}


def begin(stage: Stage, service: dict[str, Any], **instead: str) -> Process:
    """Runs the service's command; what names other containers is replaced."""
    replaced = {"DATABASE_URL": stage.database_url, **instead}
    return stage.start(*service["command"], **{**settings_of(service), **replaced})


def test_it_has_a_database_a_migration_an_api_and_two_workers(services: dict[str, Any]) -> None:
    commands = [service["command"][0] for service in services.values() if "command" in service]
    assert sorted(commands) == ["migrate", "serve", "worker", "worker"]
    assert services["postgres"]["image"].startswith("postgres:")
    assert "--no-workers" in services["api"]["command"]


def test_every_variable_is_a_setting_and_every_value_is_right(services: dict[str, Any]) -> None:
    for service in services.values():
        given = {name: value for name, value in service["environment"].items() if name.startswith("TENURE_")}
        assert all(isinstance(value, str) for value in given.values())
        load(given)
    url = load(services["api"]["environment"]).database.url
    postgres = services["postgres"]["environment"]
    assert url == "postgresql://{POSTGRES_USER}:{POSTGRES_PASSWORD}@postgres:5432/{POSTGRES_DB}".format(**postgres)


def test_it_is_published_to_this_machine_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8080:8080"]


def test_a_stop_waits_longer_than_running_jobs_get(services: dict[str, Any]) -> None:
    grace = load({}).workers.shutdown_grace_seconds
    for name in ("api", "worker-1", "worker-2"):
        period = services[name]["stop_grace_period"]
        assert grace < float(period.removesuffix("s")) < DAY_SECONDS


def test_nothing_starts_before_the_schema_is_there(services: dict[str, Any]) -> None:
    for name in ("api", "worker-1", "worker-2"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"


def test_the_image_starts_the_command_line() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert 'ENTRYPOINT ["tenure"]' in lines
    assert "STOPSIGNAL SIGTERM" in lines
    (user,) = [shlex.split(line)[1] for line in lines if line.startswith("USER ")]
    assert user != "root"


async def test_its_processes_do_a_job_together_and_each_ends_in_order(
    stage: Stage, services: dict[str, Any], tmp_path: Path
) -> None:
    early = begin(stage, services["worker-1"])
    assert await early.exit_code() == 2
    assert "tenure migrate" in early.output()
    for _ in range(2):
        assert await begin(stage, services["migrate"]).exit_code() == 0
    port = free_port()
    api = begin(stage, services["api"], HOST="127.0.0.1", PORT=str(port))
    api.url = f"http://127.0.0.1:{port}"
    workers = [begin(stage, services[name], WORKER_ID=name) for name in ("worker-1", "worker-2")]
    await until(lambda: answers(api, "/readyz"), timeout_seconds=30)
    for worker in workers:
        await until(lambda worker=worker: "ready" in worker.output(), timeout_seconds=30)
    async with submitter(api.url) as caller:
        for _ in range(4):
            job = await caller.enqueue("demo.sleep", {"duration_ms": 10})
            assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1
            leased = next(event for event in await caller.events(job["id"]) if event["type"] == "leased")
            assert leased["worker_id"] in {"worker-1", "worker-2"}
    for process in (*workers, api):
        process.send(signal.SIGTERM)
        assert await process.exit_code() == 0, process.output()
        assert "Traceback" not in process.output()
