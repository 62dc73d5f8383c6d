"""Tenure: an asyncio HTTP job queue on PostgreSQL that can always say where a job is, who holds it, and why it died.

What stands here is the public interface; everything else may move.
"""

from tenure.errors import (
    CompletionUnavailable,
    ConfigurationError,
    DatabaseUnavailable,
    DeadlinePassed,
    HandlerError,
    IdempotencyKeyReused,
    InvalidInput,
    JobCanceled,
    LeaseLost,
    NotCancelable,
    NotFound,
    NotRetryable,
    PermanentError,
    PoisonError,
    RetryLater,
    TenureError,
    VersionMismatch,
)
from tenure.jobs.model import Job, State
from tenure.jobs.retry import RetryPolicy
from tenure.transactional import EnqueuedJob, enqueue
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry

__version__ = "0.1.0"

__all__ = [
    "CompletionUnavailable",
    "ConfigurationError",
    "DatabaseUnavailable",
    "DeadlinePassed",
    "EnqueuedJob",
    "HandlerError",
    "IdempotencyKeyReused",
    "InvalidInput",
    "Job",
    "JobCanceled",
    "JobContext",
    "JobRegistry",
    "LeaseLost",
    "NotCancelable",
    "NotFound",
    "NotRetryable",
    "PermanentError",
    "PoisonError",
    "RetryLater",
    "RetryPolicy",
    "State",
    "TenureError",
    "VersionMismatch",
    "enqueue",
]
