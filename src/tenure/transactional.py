"""Enqueue in the caller's own transaction: the job exists exactly if the caller's writes do, so no outbox is needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.acceptance import Terms, accept
from tenure.jobs.model import Job
from tenure.store import enqueue as store_enqueue
from tenure.store.guest import GuestOf, guest, wake
from tenure.wire.jobs import EnqueueRequest
from tenure.wire.json import dumps, parse
from tenure.wire.reading import read
from tenure.worker.registry import JobRegistry


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A job in a transaction that is still open. Await ``wake()`` after the commit, and it starts at once; without it,
    polling finds the job within a second or so."""

    job: Job
    replayed: bool
    _connection: Any = field(repr=False)
    _schema: str = field(repr=False)

    async def wake(self) -> None:
        """Tells idle workers that there is work. A hint: skipping it, or losing it, loses nothing."""
        if not self.replayed:
            await wake(self._connection, self._schema, self.job.queue)


async def enqueue(
    connection: GuestOf,
    kind: str,
    payload: Any = None,
    *,
    schema: str = "tenure",
    registry: JobRegistry | None = None,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> EnqueuedJob:
    """Puts a job into the transaction that is open on ``connection``; it is there when that commits, and only then.

    ``fields`` are those of ``POST /jobs`` (``queue=…, delay_seconds=…, idempotency_key=…``); ``options`` takes the same as
    a mapping. With a ``registry``, the kind's defaults hold and its payload model is checked. Times are datetimes or RFC
    3339 text.

    Raises InvalidInput (each wrong field is named), IdempotencyKeyReused, BodyTooLarge, ConfigurationError (a connection
    of another kind). After any of these the transaction can go on; nothing was written.
    """
    sent = parse(dumps({"kind": kind, "payload": payload, **(options or {}), **_plain(fields)}))
    asked = read(EnqueueRequest, sent)
    job = accept(asked, sent, terms=Terms(registry=registry), key=asked.idempotency_key)
    (accepted,) = await store_enqueue.enqueue(await guest(connection, schema), [job])
    return EnqueuedJob(accepted.job, accepted.replayed, connection, schema)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Datetimes as the text that the wire speaks."""
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in fields.items()}
