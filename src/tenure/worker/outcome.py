"""How an attempt ended, and what is reported for it: the rules, as one pure function."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind
from tenure.store.settle import Outcome, OutcomeKind
from tenure.worker.classify import Classified, classify
from tenure.worker.spec import HandlerSpec, UnstorableResult
from tenure.worker.stops import StopReason, Stops


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The handler returned; ``result`` is its JSON text."""

    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The handler raised, or its process ended. ``stopping`` when that is how a handler stops that was told to."""

    error: ReportedError
    meant: bool = False
    stopping: bool = False


Ended = Returned | Raised


def returned(spec: HandlerSpec, value: Any, *, max_result_bytes: int) -> Ended:
    """What a returned value comes to: a result that cannot be stored is a failure that says so."""
    try:
        return Returned(result=checked_result(spec.dump_result(value), max_result_bytes))
    except Exception as error:
        if not isinstance(error, UnstorableResult):  # a model's own serializer failed
            error = UnstorableResult(f"the result cannot be written as JSON: {type(error).__name__}")
        return raised(error)


def checked_result(text: str, max_result_bytes: int) -> str:
    """The text, if it is small enough to be stored. Raises UnstorableResult."""
    # No character takes more than four bytes: only what is near the bound needs to be counted exactly.
    if len(text) * 4 > max_result_bytes and (size := len(text.encode())) > max_result_bytes:
        raise UnstorableResult(
            f"the result has {size:,} bytes as JSON, {max_result_bytes:,} are allowed; store it elsewhere, return where"
        )
    return text


def raised(error: BaseException, *, stopping: bool = False) -> Raised:
    """What an exception comes to."""
    return _as_raised(classify(error), stopping=stopping)


def _as_raised(classified: Classified, *, stopping: bool) -> Raised:
    return Raised(error=classified.error, meant=classified.meant, stopping=stopping or classified.stopping)


def outcome_of(
    ended: Ended, stops: Stops, *, job_id: UUID, token: str, timeout_seconds: float | None
) -> Outcome | None:
    """What to report; None for a lost lease, of which nothing counts.

    A success counts whenever it comes. A handler that stopped because it was told to is reported by the weightiest
    reason: canceled, deadline, timeout, or released when only the worker stops. What a handler means (a permanent
    error, say) is believed even then.
    """
    reason = stops.weightiest
    if reason is StopReason.LOST:
        return None
    if isinstance(ended, Returned):
        return Outcome(job_id=job_id, token=token, kind=OutcomeKind.COMPLETE, result=ended.result)
    if reason is StopReason.DRAIN and not ended.meant:
        return Outcome(job_id=job_id, token=token, kind=OutcomeKind.RELEASE)
    return Outcome(
        job_id=job_id, token=token, kind=OutcomeKind.FAIL, error=_told(ended, reason, timeout_seconds=timeout_seconds)
    )


def _told(ended: Raised, reason: StopReason | None, *, timeout_seconds: float | None) -> ReportedError:
    if reason is StopReason.CANCEL:
        return replace(ended.error, kind=ErrorKind.CANCELED) if ended.stopping else ended.error
    if reason not in {StopReason.DEADLINE, StopReason.TIMEOUT} or ended.meant:
        return ended.error
    if reason is StopReason.DEADLINE:
        kind, name, message = ErrorKind.DEADLINE, "DeadlinePassed", "the deadline passed while the attempt ran"
    else:
        kind, name = ErrorKind.TIMEOUT, "AttemptTimeout"
        message = f"the attempt ran longer than its timeout of {timeout_seconds:g} s"
    if not ended.stopping:
        message += f"; while it stopped, it raised {ended.error.type}: {ended.error.message}"
    return ReportedError(kind=kind, type=name, message=message)
