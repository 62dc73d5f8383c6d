"""The harness is itself tested: each fault that is seeded is caught, and without a fault nothing is found."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.findings import Findings
from tests.chaos.launcher import Zygote
from tests.chaos.scenarios import SCENARIOS, play

pytestmark = pytest.mark.story

_FAULTY_PATIENCE_SECONDS = 12.0
"""A fault may hinder its scenario for good: it is not waited for as long as a scenario that has to end."""


@pytest.mark.timeout(240)
async def test_every_seeded_fault_is_caught_and_nothing_is_found_without_one(server_url: str, tmp_path: Path) -> None:
    """All at the same time, each on a database and a service of its own: most of it is waiting for leases to end."""
    launcher = await Zygote().open()
    try:
        sound = play(
            SCENARIOS,
            build="",
            launcher=launcher,
            server_url=server_url,
            database=f"tenure_sound_{uuid4().hex[:12]}",
            folder=tmp_path / "sound",
        )
        faulty = [
            play(
                {name: SCENARIOS[name]},
                build=name,
                launcher=launcher,
                server_url=server_url,
                database=f"tenure_faulty_{uuid4().hex[:12]}",
                folder=tmp_path / name,
                patience_seconds=_FAULTY_PATIENCE_SECONDS,
            )
            for name in FAULTS
        ]
        found: list[Findings] = await asyncio.gather(sound, *faulty)
    finally:
        await launcher.close()
    assert not found[0].found, found[0].shown()
    missed = {
        name: f"should be caught as {sorted(fault.caught_by)}; found:\n{findings.shown()}"
        for (name, fault), findings in zip(FAULTS.items(), found[1:], strict=True)
        if not fault.caught_by & set(findings.counts)
    }
    assert not missed, "\n".join(f"{name}: {why}" for name, why in missed.items())
