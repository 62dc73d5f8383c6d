"""docs/protocol.md says what the code does: reasons, kinds of errors, scenarios, limits."""

import re
from pathlib import Path
from typing import get_args

from annotated_types import Le, MaxLen

from tenure.conformance import SCENARIOS
from tenure.jobs.model import LostReason
from tenure.wire import leases as wire
from tenure.wire.reading import Request

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def table(header: str) -> dict[str, str]:
    """The rows of the table with this header: what stands in code in the first column, and the last column."""
    _, _, rest = PAGE.partition(f"\n| {header}")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0].strip("`"): row[-1] for row in cells}


def test_it_has_every_reason_for_a_lost_lease_and_no_other() -> None:
    assert list(table("`reason`")) == [str(reason) for reason in LostReason]


def test_it_has_every_kind_of_error_that_can_be_reported_and_no_other() -> None:
    assert sorted(table("`kind`")) == sorted(get_args(wire.ReportableKind))


def test_it_has_every_scenario_with_its_rule() -> None:
    assert table("scenario") == {scenario.name: scenario.rule for scenario in SCENARIOS}
    assert f"all {len(SCENARIOS)} scenarios passed" in PAGE


def test_its_limits_are_those_of_the_requests() -> None:
    wait = wire.ClaimRequest.model_fields["wait_seconds"].metadata
    assert [limit.le for limit in wait if isinstance(limit, Le)] == [30]
    assert "waits at most 30 seconds" in PAGE
    for request, name in ((wire.HeartbeatManyRequest, "leases"), (wire.SettleManyRequest, "outcomes")):
        assert [limit.max_length for limit in request.model_fields[name].metadata if isinstance(limit, MaxLen)] == [
            10_000
        ]
    assert "up to 10,000 items" in PAGE


def test_its_bodies_name_every_field_of_the_requests_and_answers() -> None:
    for model in (
        wire.ClaimRequest,
        wire.LeaseGrant,
        wire.ClaimAnswer,
        wire.HeartbeatRequest,
        wire.ProgressReport,
        wire.HeartbeatAnswer,
        wire.CompleteRequest,
        wire.FailRequest,
        wire.ReportedFailure,
        wire.SnoozeRequest,
        wire.SettleAnswer,
        wire.OutcomeItem,
    ):
        for name, field in model.model_fields.items():
            optional = "?" if issubclass(model, Request) and not field.is_required() else ""
            assert re.search(rf"\b{name}{re.escape(optional)}", PAGE), f"{model.__name__}.{name}{optional}"
