"""Job ids: UUIDv7, made by the application, each carrying the bucket that decides its part.

A bare id always yields its part, so no look-up is ever needed to find where a job lies. The bucket is the last five bits
of the id: the hash of (tenant, idempotency key) where there is a key, so that a repeat meets the first job in one part;
else of (tenant, queue, concurrency key) where there is one, so that a key's limit is counted in one part; else random.
"""

import hashlib
import secrets
import time
from typing import NewType
from uuid import UUID

JobId = NewType("JobId", UUID)

BUCKETS = 32
"""Five bits: the finest split into parts. 32 is four times the data nodes at which sharding still pays."""

_ID_RANDOM_BITS = 74
_BUCKET_MASK = BUCKETS - 1


def new_job_id(
    *, tenant: str, queue: str, idempotency_key: str | None = None, concurrency_key: str | None = None
) -> JobId:
    """Makes an id whose time is this process's clock (for order only: no decision rests on it)."""
    if idempotency_key is not None:
        bucket = _bucket(tenant, idempotency_key)
    elif concurrency_key is not None:
        bucket = _bucket(tenant, queue, concurrency_key)
    else:
        bucket = None
    return _uuid7(time.time_ns() // 1_000_000, bucket)


def part_of(job_id: UUID, parts: int = 1) -> int:
    """The part, 0 … parts − 1, in which the job lies. ``parts`` is a power of two up to 32."""
    return (job_id.int & _BUCKET_MASK) % parts


def _bucket(*words: str) -> int:
    digest = hashlib.blake2b("\x00".join(words).encode(), digest_size=2).digest()
    return int.from_bytes(digest) & _BUCKET_MASK


def _uuid7(milliseconds: int, bucket: int | None) -> JobId:
    random = secrets.randbits(_ID_RANDOM_BITS)
    if bucket is not None:
        random = random & ~_BUCKET_MASK | bucket
    high, low = random >> 62, random & ((1 << 62) - 1)
    return JobId(UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
