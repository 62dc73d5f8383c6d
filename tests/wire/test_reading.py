"""From JSON to models: every wrong field is named."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.errors import InvalidInput
from tenure.wire.fields import parse_time, valid_traceparent
from tenure.wire.jobs import EnqueueRequest
from tenure.wire.leases import ClaimRequest, FailRequest, HeartbeatManyRequest, SettleManyRequest
from tenure.wire.reading import MAX_ERRORS, Request, read


def refusals(model: type[Request], value: Any, at: str = "") -> dict[str, str]:
    with pytest.raises(InvalidInput) as refusal:
        read(model, value, at=at)
    return {error.pointer: error.message for error in refusal.value.errors}


def test_every_wrong_field_is_named_at_once() -> None:
    found = refusals(EnqueueRequest, {"knd": "a", "priority": 101, "tags": ["a", 3]}, at="/jobs/7")
    assert found.keys() == {"/jobs/7/kind", "/jobs/7/knd", "/jobs/7/priority", "/jobs/7/tags/1"}
    assert found["/jobs/7/kind"] == "is required"
    assert "`kind`" in found["/jobs/7/knd"]


def test_unknown_field_inside_another_is_compared_with_its_neighbours() -> None:
    found = refusals(FailRequest, {"lease_token": "t", "error": {"kind": "unknown", "message": "x", "mesage": 1}})
    assert "`message`" in found["/error/mesage"]
    found = refusals(HeartbeatManyRequest, {"leases": [{"job_id": "x", "lease_tokn": "t"}]})
    assert "`lease_token`" in found["/leases/0/lease_tokn"]
    assert "UUID" in found["/leases/0/job_id"]


def test_what_resembles_nothing_is_answered_with_what_there_is() -> None:
    assert "known are: " in refusals(EnqueueRequest, {"kind": "a", "xyzzy": 1})["/xyzzy"]


@pytest.mark.parametrize("value", [None, 3, "x", [], True])
def test_what_is_no_object_is_refused_as_a_whole(value: Any) -> None:
    assert refusals(EnqueueRequest, value) == {"": "should be a JSON object"}


def test_number_of_errors_is_bounded() -> None:
    assert len(refusals(EnqueueRequest, {"kind": "a", **{f"x{number}": 1 for number in range(1_000)}})) == MAX_ERRORS


def test_kinds_are_names_or_objects() -> None:
    value = {"worker_id": "w", "queues": ["q"], "kinds": ["a", {"kind": "b", "schema_versions": [1]}]}
    asked = read(ClaimRequest, value)
    assert asked.kinds is not None
    assert [(wanted.kind, wanted.schema_versions) for wanted in asked.kinds] == [("a", None), ("b", [1])]
    found = refusals(ClaimRequest, value | {"kinds": ["a", 3, {"kind": "b", "schema_versionz": [1]}]})
    assert found.keys() == {"/kinds/1", "/kinds/2/schema_versionz"}


def outcomes() -> Iterator[tuple[dict[str, Any], str | None]]:
    error = {"kind": "unknown", "message": "x"}
    yield {"outcome": "complete", "result": 3}, None
    yield {"outcome": "complete", "result": 3, "error": None}, None
    yield {"outcome": "complete", "error": error}, "/outcomes/0/error"
    yield {"outcome": "fail", "error": error, "retry_after_seconds": 86_400}, None
    yield {"outcome": "fail", "error": error, "retry_after_seconds": 86_401}, "/outcomes/0/retry_after_seconds"
    yield {"outcome": "fail"}, "/outcomes/0/error"
    yield {"outcome": "fail", "error": error, "result": 0}, "/outcomes/0/result"
    yield {"outcome": "release"}, None
    yield {"outcome": "release", "delay_seconds": 1}, "/outcomes/0/delay_seconds"
    yield {"outcome": "snooze", "delay_seconds": 0}, None
    yield {"outcome": "snooze"}, "/outcomes/0/delay_seconds"
    yield {"outcome": "explode"}, "/outcomes/0/outcome"


@pytest.mark.parametrize(("fields", "pointer"), list(outcomes()))
def test_outcome_takes_what_goes_with_it(fields: dict[str, Any], pointer: str | None) -> None:
    item = {"job_id": "0198f3a0-7c1e-7b5e-9d53-1f0f3f6c0a11", "lease_token": "t", **fields}
    if pointer is None:
        read(SettleManyRequest, {"outcomes": [item]})
    else:
        assert refusals(SettleManyRequest, {"outcomes": [item]}).keys() == {pointer}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31t12:00:00.5z", datetime(2030, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2030-01-31 12:00:00+01:00", datetime(2030, 1, 31, 11, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999998Z", datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC)),
    ],
)
def test_times_with_an_offset_are_read(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment


def test_the_one_time_that_the_database_takes_for_infinity_is_refused() -> None:
    with pytest.raises(ValueError, match="earlier than"):
        parse_time("9999-12-31T23:59:59.999999Z")


@pytest.mark.parametrize(
    "text",
    ["", "now", "2030-01-31", "2030-01-31T12:00:00", "2030-01-31T24:00:01Z", "2030-13-01T00:00:00Z",
     "0001-01-01T00:00:00+23:59", "10000-01-01T00:00:00Z", "2030-01-31T12:00:00+25:00", "2030-01-31T12:00:00Z\n",
     "\uff12\uff1030-01-31T12:00:00Z"],
)  # fmt: skip
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"should be|is no moment|must lie"):
        parse_time(text)


def test_only_valid_trace_context_is_kept() -> None:
    valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert valid_traceparent(valid) == valid
    for broken in ("", "ff" + valid[2:], valid.upper(), valid[:-1], valid + "\n", valid.replace("4bf", "xyz")):
        assert valid_traceparent(broken) is None
