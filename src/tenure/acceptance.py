"""From what was asked for to the job that is stored: the job's own word, else its kind's, else the service's."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tenure.errors import BodyTooLarge, FieldError, InvalidInput
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import DEFAULT_QUEUE, DEFAULT_TENANT, NewJob
from tenure.settings import JobSettings, LimitSettings
from tenure.wire.jobs import EnqueueRequest
from tenure.wire.json import canonical, dumps
from tenure.worker.registry import JobRegistry
from tenure.worker.spec import HandlerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What jobs are accepted on: the kinds that are known here, the limits, and what holds where nobody says otherwise."""

    registry: JobRegistry | None = None
    limits: LimitSettings = field(default_factory=LimitSettings)
    defaults: JobSettings = field(default_factory=JobSettings)


def accept(
    asked: EnqueueRequest,
    sent: dict[str, Any],
    *,
    terms: Terms,
    key: str | None,
    traceparent: str | None = None,
    at: str = "",
) -> NewJob:
    """The job to store. ``sent`` is the request as it came (the key stands for it), ``at`` its pointer within a batch.

    Raises BodyTooLarge for a payload over the limit, InvalidInput for one that a known kind does not take.
    """
    spec = terms.registry.get(asked.kind) if terms.registry is not None else None
    payload = dumps(asked.payload)
    limit = terms.limits.payload_bytes
    if len(payload) > limit:
        raise BodyTooLarge(
            f"{at}/payload is {len(payload):,} bytes as JSON; at most {limit:,} are taken", limit_bytes=limit
        )
    schema_version = asked.schema_version or 1
    if spec is not None and _knows(spec, schema_version):
        _check_payload(spec, payload, at)
    queue = asked.queue or (spec.queue if spec else DEFAULT_QUEUE)
    return NewJob(
        id=new_job_id(tenant=DEFAULT_TENANT, queue=queue, idempotency_key=key, concurrency_key=asked.concurrency_key),
        kind=asked.kind,
        payload=payload.decode(),
        queue=queue,
        priority=asked.priority or 0,
        schema_version=schema_version,
        tags=tuple(asked.tags or ()),
        metadata=dumps(asked.metadata or {}).decode(),
        max_attempts=asked.max_attempts or (spec and spec.max_attempts) or terms.defaults.max_attempts,
        available_at=asked.available_at,
        delay_seconds=asked.delay_seconds,
        timeout_seconds=asked.timeout_seconds or (spec.timeout_seconds if spec else None),
        deadline_at=asked.deadline_at,
        expires_in_seconds=asked.expires_in_seconds,
        lease_seconds=asked.lease_seconds or (spec.lease_seconds if spec else None),
        idempotency_key=key,
        request_digest=_digest(sent) if key is not None else None,
        concurrency_key=asked.concurrency_key,
        traceparent=traceparent,
    )


def _knows(spec: HandlerSpec, schema_version: int) -> bool:
    """A version that the handler here does not know waits for a worker that does; nobody here can judge it."""
    return not spec.schema_versions or schema_version in spec.schema_versions


def _check_payload(spec: HandlerSpec, payload: bytes, at: str) -> None:
    try:
        spec.validate(payload)
    except InvalidInput as refusal:
        if not at:
            raise
        errors = [FieldError(pointer=at + error.pointer, message=error.message) for error in refusal.errors]
        raise InvalidInput(f"{at}: {refusal.detail}", errors=errors) from None


def _digest(sent: dict[str, Any]) -> bytes:
    """The same for requests that are JSON-equal, wherever their key was."""
    body = {name: value for name, value in sent.items() if name != "idempotency_key"}
    return hashlib.blake2b(canonical(body), digest_size=16).digest()
