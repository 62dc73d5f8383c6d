"""`demo.sleep`: takes a while, then succeeds or fails as told: for trying out leases, retries and cancels."""

import asyncio
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tenure.errors import PermanentError, PoisonError, RetryLater
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry

_SHORTEST_STEP_SECONDS = 0.05
_LONGEST_STEP_SECONDS = 1.0
_STEPS = 50
"""Progress moves visibly, and a cancel is seen soon, without a day-long sleep waking up a million times."""


class SleepRequest(BaseModel):
    """How long to take, and how it is to end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    duration_ms: int = Field(2_000, ge=0, le=86_400_000, description="how long each attempt takes, in milliseconds")
    fail: bool = Field(False, description="whether attempts fail at their end")
    fail_times: int | None = Field(
        None,
        ge=0,
        le=1_000,
        description="fail this many attempts over the job's whole life, then succeed; without it, `fail` fails them all",
    )
    error: Literal["transient", "permanent", "unknown", "poison"] = Field(
        "transient", description="as what a failing attempt reports itself"
    )

    def fails(self, attempt_version: int) -> bool:
        """Whether the attempt that began at this version of the job is to fail.

        The n-th attempt of an undisturbed job begins at version 2n (each attempt leaves two events). The version, unlike
        the count of attempts, goes on growing when an operator retries the job, so the failures are not told again then.
        """
        return self.fail if self.fail_times is None else attempt_version <= 2 * self.fail_times


class SleepResult(BaseModel):
    """What it did."""

    slept_ms: int
    attempt: int = Field(description="number of the attempt that succeeded; an operator's retry starts again at 1")


class ProgrammedBug(Exception):
    """What `error: unknown` raises: an exception that no handler should let out."""


def register_demo_sleep(registry: JobRegistry) -> None:
    """Adds `demo.sleep` to the registry."""
    registry.handler("demo.sleep")(sleep)


async def sleep(context: JobContext, request: SleepRequest) -> SleepResult:
    """Sleeps in small steps with progress, then succeeds or fails as told."""
    seconds = request.duration_ms / 1_000
    step = min(max(seconds / _STEPS, _SHORTEST_STEP_SECONDS), _LONGEST_STEP_SECONDS)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while (elapsed := loop.time() - begin) < seconds:
        context.raise_if_canceled()
        await context.progress(elapsed / seconds, f"slept {elapsed:.1f} of {seconds:g} s")
        await asyncio.sleep(min(step, seconds - elapsed))
    attempt = context.job.attempts
    if request.fails(context.attempt_version):
        _fail(request.error, f"attempt {attempt} failed, as told")
    return SleepResult(slept_ms=request.duration_ms, attempt=attempt)


def _fail(error: str, message: str) -> None:
    match error:
        case "transient":
            raise RetryLater(message)
        case "permanent":
            raise PermanentError(message)
        case "poison":
            raise PoisonError(message)
        case _:
            raise ProgrammedBug(message)
