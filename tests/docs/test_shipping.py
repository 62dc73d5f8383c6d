"""Dockerfile and docker-compose.yml: what they name exists, and files travel between their processes.

That the processes start, do jobs and end in order is told by tests/story/test_compose.py.
"""

import re
import subprocess
import sys
from typing import Any

import pytest
import typer.main
import yaml

from tenure.cli.app import app
from tenure.settings import unknown_variables
from tests.docs.reading import ROOT
from tests.story.harness import Process, Stage, submitter
from tests.waiting import until

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load(re.sub(r"\$\{\w+:-(\w+)\}", r"\1", (ROOT / "docker-compose.yml").read_text()))
OURS: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if service["image"] == "tenure"
}
REPORTS = ROOT / "tests" / "reports.toml"


@pytest.mark.parametrize("name", OURS)
def test_every_command_and_setting_of_the_composition_is_known(name: str) -> None:
    command, variables = OURS[name]["command"], OURS[name]["environment"]
    found = typer.main.get_command(app).commands[command[0]]  # type: ignore[attr-defined]
    known = {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
    assert set(command[1:]) <= known
    assert unknown_variables(variables) == []


def test_volumes_are_named_and_the_account_in_the_image_can_write_to_them() -> None:
    """A fresh volume belongs to whoever owns its folder in the image, and to root if there is none."""
    made = re.findall(r"install --directory --owner tenure --group tenure --mode 0700 (\S+)", DOCKERFILE)
    for service in OURS.values():
        for volume in service["volumes"]:
            name, _, folder = volume.partition(":")
            assert name in COMPOSE["volumes"]
            assert folder in made
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE) == ["tenure"]
    (data_dir,) = re.findall(r"TENURE_DATA_DIR=(\S+)", DOCKERFILE)
    assert made == [f"{data_dir}/artifacts"]


def test_what_the_image_is_built_from_exists_and_reaches_the_builder() -> None:
    sources = {
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    sent = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert sources == sent
    assert all((ROOT / name).exists() for name in sources)


@pytest.mark.story
async def test_both_workers_hold_jobs_and_the_api_hands_out_their_files(stage: Stage) -> None:
    """The commands as they stand, as processes of this machine, over one directory of artifacts."""
    shared: dict[str, Any] = {
        "ARTIFACT_STORE": str(stage.folder / "artifacts"),
        "REPORTS": str(REPORTS),
        "HOST": "127.0.0.1",
    }
    migrated = start(stage, "migrate", **shared)
    assert await migrated.exit_code() == 0, migrated.output()
    (api,) = [service for service in OURS.values() if service["command"][0] == "serve"]
    service = await stage.serve(*api["command"][1:], **{**variables(api), **shared})
    healthy(api, service)
    for name, worker in OURS.items():
        if worker["command"] == ["worker"]:
            start(stage, name, WORKER_ID=name, WORKER_SLOTS="1", **shared)
    async with submitter(service.url) as caller:
        held = [await caller.enqueue("story.hold", stage.payload()) for _ in range(2)]
        await until(lambda: len(stage.starts()) == 2, timeout_seconds=30)
        holders = {(await caller.job(job["id"]))["lease"]["worker_id"] for job in held}
        assert holders == {"worker-1", "worker-2"}
        stage.go()
        for job in held:
            await caller.in_state(job["id"], "succeeded")
        request = {"report": "numbers", "format": "csv", "parameters": {"rows": 300}}
        export = await caller.enqueue("report.export", request)
        done = await caller.in_state(export["id"], "succeeded", "failed", "dead")
        (artifact,) = done["result"]["artifacts"]
        file = await caller.client.get(f"/jobs/{export['id']}/artifacts/{artifact['name']}")
        assert len(file.content.splitlines()) == 301


def start(stage: Stage, name: str, **settings: str) -> Process:
    return stage.start(*OURS[name]["command"], **{**variables(OURS[name]), **settings})


def variables(service: dict[str, Any]) -> dict[str, Any]:
    """Its settings without their prefix, and without the address of a database that is not here."""
    return {
        name.removeprefix("TENURE_"): value
        for name, value in service["environment"].items()
        if name != "TENURE_DATABASE_URL"
    }


def healthy(service: dict[str, Any], process: Process) -> None:
    """Its health check, as the container would run it."""
    kind, program, *arguments = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    here = [argument.replace("http://127.0.0.1:8080", process.url) for argument in arguments]
    assert here != arguments
    subprocess.run([sys.executable, *here], check=True, timeout=30)
