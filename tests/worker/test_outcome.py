"""What is reported for how an attempt ended: every reason to stop, against every way to end."""

from uuid import uuid4

import pytest

from tenure.errors import JobCanceled, PermanentError, RetryLater
from tenure.jobs.model import ErrorKind
from tenure.store.settle import OutcomeKind
from tenure.worker.outcome import Ended, Returned, outcome_of, raised
from tenure.worker.stops import StopReason, Stops

ENDINGS: dict[str, Ended] = {
    "returned": Returned(result="1"),
    "stopped": raised(JobCanceled("told to")),
    "cancelled": raised(RuntimeError("as CancelledError"), stopping=True),
    "broke": raised(ValueError("bug")),
    "permanent": raised(PermanentError("never")),
    "later": raised(RetryLater("busy", after_seconds=5)),
}

# reason → ending → what is reported: "complete", "release", an error's kind, or nothing.
EXPECTED: dict[StopReason | None, dict[str, str | None]] = {
    None: {
        "returned": "complete",
        "stopped": "unknown",
        "cancelled": "unknown",
        "broke": "unknown",
        "permanent": "permanent",
        "later": "transient",
    },
    StopReason.LOST: dict.fromkeys(ENDINGS),
    StopReason.CANCEL: {
        "returned": "complete",
        "stopped": "canceled",
        "cancelled": "canceled",
        "broke": "unknown",
        "permanent": "permanent",
        "later": "transient",
    },
    StopReason.DEADLINE: {
        "returned": "complete",
        "stopped": "deadline",
        "cancelled": "deadline",
        "broke": "deadline",
        "permanent": "permanent",
        "later": "transient",
    },
    StopReason.TIMEOUT: {
        "returned": "complete",
        "stopped": "timeout",
        "cancelled": "timeout",
        "broke": "timeout",
        "permanent": "permanent",
        "later": "transient",
    },
    StopReason.DRAIN: {
        "returned": "complete",
        "stopped": "release",
        "cancelled": "release",
        "broke": "release",
        "permanent": "permanent",
        "later": "transient",
    },
}


@pytest.mark.parametrize("reason", [None, *StopReason])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_reason_and_the_ending_decide(reason: StopReason | None, ending: str) -> None:
    stops = Stops()
    if reason is not None:
        stops.request(reason)
    report = outcome_of(ENDINGS[ending], stops, job_id=uuid4(), token="t", timeout_seconds=1.5)
    if report is None:
        told = None
    elif report.kind is OutcomeKind.FAIL:
        assert report.error is not None
        told = str(report.error.kind)
    else:
        told = str(report.kind)
    assert told == EXPECTED[reason][ending]


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [
        ([StopReason.DRAIN, StopReason.TIMEOUT], ErrorKind.TIMEOUT),
        ([StopReason.TIMEOUT, StopReason.DEADLINE], ErrorKind.DEADLINE),
        ([StopReason.DRAIN, StopReason.TIMEOUT, StopReason.DEADLINE, StopReason.CANCEL], ErrorKind.CANCELED),
    ],
)
def test_the_weightiest_reason_decides_whichever_came_first(reasons: list[StopReason], kind: ErrorKind) -> None:
    stops = Stops()
    for reason in reasons:
        stops.request(reason)
    report = outcome_of(ENDINGS["cancelled"], stops, job_id=uuid4(), token="t", timeout_seconds=1.0)
    assert report is not None
    assert report.error is not None
    assert report.error.kind is kind


def test_what_broke_while_it_stopped_is_told_too() -> None:
    stops = Stops()
    stops.request(StopReason.TIMEOUT)
    report = outcome_of(ENDINGS["broke"], stops, job_id=uuid4(), token="t", timeout_seconds=1.5)
    assert report is not None
    assert report.error is not None
    assert report.error.message == (
        "the attempt ran longer than its timeout of 1.5 s; while it stopped, it raised ValueError: bug"
    )


def interrupted() -> tuple[Stops, list[int]]:
    stops, calls = Stops(), []
    stops.interrupt = lambda: calls.append(len(stops.reasons))
    return stops, calls


def test_each_new_reason_interrupts_once() -> None:
    stops, calls = interrupted()
    for reason in (StopReason.TIMEOUT, StopReason.TIMEOUT, StopReason.CANCEL, StopReason.TIMEOUT):
        stops.request(reason)
    assert calls == [1, 2]


def test_a_hold_defers_all_but_a_lost_lease_and_a_seal_that_too() -> None:
    stops, calls = interrupted()
    stops.hold()
    stops.hold()
    stops.request(StopReason.CANCEL)
    stops.unhold()
    assert calls == []
    stops.unhold()
    assert calls == [1]
    stops, calls = interrupted()
    stops.hold()
    with stops.sealed():
        stops.request(StopReason.CANCEL)
        stops.request(StopReason.LOST)
        assert calls == []
    assert calls == [2]


def test_force_waits_for_nothing_and_interrupts_again() -> None:
    stops, calls = interrupted()
    stops.request(StopReason.DRAIN)
    stops.hold()
    with stops.sealed():
        stops.request(StopReason.DRAIN, forced=True)
    assert calls == [1, 1]
