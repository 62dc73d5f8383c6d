"""The conformance kit: the example workers pass every scenario, and each way to break the protocol is caught."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenure.conformance import SCENARIOS, Report, verify
from tenure.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FAULTY = Path(__file__).with_name("faulty_worker.py")

needs_shell_tools = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("bash", "curl", "jq", "timeout")), reason="needs bash, curl, jq, coreutils"
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")


async def verdicts(
    server_url: str,
    *command: str,
    only: tuple[str, ...] = (),
    lease_seconds: float = 3.0,
    patience_seconds: float = 15.0,
) -> Report:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return await verify(
        command,
        environment={**environment, "PYTHONPATH": str(ROOT), "TENURE_DATABASE_URL": server_url},
        only=only,
        lease_seconds=lease_seconds,
        patience_seconds=patience_seconds,
    )


def told(report: Report) -> str:
    return "\n".join(f"{one.scenario}: {one.detail}\n{one.output}" for one in report.verdicts if not one.passed)


PYTHON_WORKER = f'exec {sys.executable} -m tenure worker --url "$TENURE_URL" --app tests.conformance.python_jobs:jobs'


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([f"{EXAMPLES}/worker.sh", f"{EXAMPLES}/verify-job.sh"], marks=needs_shell_tools, id="shell"),
        pytest.param(["node", f"{EXAMPLES}/worker.mjs", f"{EXAMPLES}/verify-job.mjs"], marks=needs_node, id="node"),
        pytest.param(["sh", "-c", PYTHON_WORKER], id="python"),
    ],
)
async def test_our_workers_keep_to_the_protocol(server_url: str, command: list[str]) -> None:
    report = await verdicts(server_url, *command, lease_seconds=3.0, patience_seconds=20.0)
    assert [one.scenario for one in report.verdicts] == [scenario.name for scenario in SCENARIOS]
    assert report.passed, told(report)


COMPLAINTS = {
    "forgets-results": {"completes": "the result should be"},
    "forgets-kinds": {"fails": "was reported as unknown"},
    "no-heartbeat": {
        "keeps-lease": "ran out while it worked, after 0 heartbeats",
        "slow-answers": "ran out while it worked",
        "cancel": "no heartbeat",
    },
    "chooses-its-lease": {"keeps-lease": "leave it out"},
    "crashes-on-cut": {"lost-claim": "ended by itself", "restart": "ended by itself"},
    "reports-once": {"lost-outcome": "cost the job an attempt"},
    "changes-its-mind": {"lost-outcome": "reported another outcome"},
    "ignores-cancel": {"cancel": "is running instead of"},
    "succeeds-on-cancel": {"cancel": "came to finished_first instead of stopped"},
    "ignores-lost": {"lost-lease": "goes on with a job whose lease it has lost"},
    "reports-stale": {"lost-lease": "goes on with a job whose lease it has lost"},
    "floods": {"restart": "wait a second between two attempts"},
    "ignores-sigterm": {"sigterm": "still runs", "sigterm-idle": "still runs"},
    "keeps-its-lease": {"sigterm": "left the job that it held to its lease"},
}
"""What the kit says of each fault, by scenario."""


async def test_each_way_to_break_a_rule_is_caught(server_url: str) -> None:
    turn = asyncio.Semaphore(4)  # they mostly wait

    async def complaints(fault: str) -> dict[str, str | None]:
        command = (sys.executable, str(FAULTY), fault)
        async with turn:
            report = await verdicts(
                server_url, *command, only=tuple(COMPLAINTS[fault]), lease_seconds=1.5, patience_seconds=5.0
            )
        assert not report.passed
        return {one.scenario: one.detail for one in report.verdicts}

    heard = dict(zip(COMPLAINTS, await asyncio.gather(*map(complaints, COMPLAINTS)), strict=True))
    missed = {
        (fault, scenario): heard[fault][scenario]
        for fault, expected in COMPLAINTS.items()
        for scenario, complaint in expected.items()
        if complaint not in (heard[fault][scenario] or "")
    }
    assert not missed


async def test_a_worker_that_breaks_no_rule_of_a_scenario_passes_it_whatever_else_it_breaks(server_url: str) -> None:
    report = await verdicts(
        server_url, sys.executable, str(FAULTY), "no-heartbeat", only=("completes", "fails"), patience_seconds=20.0
    )
    assert report.passed, told(report)


async def test_nothing_is_left_in_a_database_that_was_given(migrated_url: str) -> None:
    await verdicts(migrated_url, sys.executable, "-c", "", only=("completes",), patience_seconds=1.0)
    raw = await asyncpg.connect(migrated_url)
    try:
        assert await raw.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenure_verify%'") == []
        assert await raw.fetch("SELECT queue FROM tenure.jobs WHERE queue LIKE 'verify%'") == []
    finally:
        await raw.close()


async def test_what_cannot_be_started_and_what_is_no_scenario_is_named(server_url: str) -> None:
    with pytest.raises(ConfigurationError, match="no program 'no-such-worker'"):
        await verdicts(server_url, "no-such-worker")
    with pytest.raises(ConfigurationError, match="no scenario 'canel'; there are: completes, "):
        await verdicts(server_url, sys.executable, only=("canel",))


def run_command(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return subprocess.run(
        [sys.executable, "-m", "tenure", "verify-worker", *arguments],
        env={**environment, "NO_COLOR": "1", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_the_command_ends_with_1_and_says_why_in_json(server_url: str) -> None:
    ran = run_command(
        *("--json", "--only", "fails", "--only", "completes", "--patience-seconds", "20", "--"),
        *(sys.executable, str(FAULTY), "forgets-kinds"),
        TENURE_DATABASE_URL=server_url,
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["passed"] is False
    assert [(one["scenario"], one["passed"]) for one in document["scenarios"]] == [
        ("completes", True),
        ("fails", False),
    ]
    assert "unknown" in document["scenarios"][1]["detail"]


def test_the_command_needs_no_database_and_ends_with_0_when_all_passed() -> None:
    ran = run_command("--only", "completes", "--", sys.executable, str(FAULTY), "no-heartbeat")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "pass  completes" in ran.stdout
    assert "all 1 scenarios passed" in ran.stdout


def test_the_command_shows_what_broke_a_rule_and_the_end_of_what_the_worker_wrote(server_url: str) -> None:
    ran = run_command(
        *("--only", "completes", "--", "sh", "-c", "echo out of memory >&2; exit 3"), TENURE_DATABASE_URL=server_url
    )
    assert ran.returncode == 1
    assert "it ended by itself, with exit code 3" in ran.stdout
    assert "│ out of memory" in ran.stdout
