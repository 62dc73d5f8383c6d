"""The tables as SQLAlchemy metadata: what the migrations must add up to (a test compares), and what Alembic reads.

``part`` leads every key and index (always 0 on one plain server), so that the same statements run on tables distributed
by it. Nothing here is made by the database: ids come from the application, there is no sequence and no trigger.
"""

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from tenure.jobs.lifecycle import TERMINAL_STATES, State
from tenure.jobs.model import CancelOutcome

NAMING_CONVENTION = {
    "pk": "%(table_name)s_pkey",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
}

metadata = MetaData(naming_convention=NAMING_CONVENTION)


def _in(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


_STATES = [str(state) for state in State]
_TERMINAL = [str(state) for state in State if state in TERMINAL_STATES]
_OUTCOMES = [str(outcome) for outcome in CancelOutcome]

_QUEUED = text("state = 'queued'")
_RUNNING = text("state = 'running'")
_ENDED_BADLY = text("state IN ('failed', 'canceled', 'dead')")


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


jobs = Table(
    "jobs",
    metadata,
    Column("part", SmallInteger, nullable=False),
    Column("id", Uuid, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("max_attempts", SmallInteger, nullable=False),
    Column("timeout_seconds", Double),
    Column("lease_seconds", Double, comment="what was asked for; the lease that runs is in lease_length_seconds"),
    Column("payload", JSON, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("idempotency_key", Text),
    Column("request_digest", LargeBinary, comment="of the body sent with the idempotency key"),
    Column("concurrency_key", Text),
    Column("submitted_by", Text),
    Column("traceparent", Text),
    _time("created_at"),
    _time("deadline_at", nullable=True),
    _time("available_at"),
    Column("releases", SmallInteger, nullable=False, comment="releases and snoozes so far: capped, then they count"),
    Column("cancel_outcome", Text),
    Column("cancel_reason", Text),
    Column("cancel_requested_by", Text),
    _time("cancel_requested_at", nullable=True),
    _time("cancel_delivered_at", nullable=True),
    _time("cancel_confirmed_at", nullable=True),
    Column("cancel_accepted_version", Integer, comment="the version that the first request met"),
    Column("last_error", JSON),
    Column("error_fingerprint", Text, comment="of last_error, for grouping"),
    # What claim, heartbeat and settle change stands at the end: of a row's new version only that is written to the log.
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("attempts", SmallInteger, nullable=False),
    _time("updated_at"),
    _time("started_at", nullable=True),
    _time("finished_at", nullable=True),
    Column("lease_token_digest", LargeBinary, comment="of the current holder's token, which itself is stored nowhere"),
    Column("lease_worker_id", Text, comment="the holder; once the lease has ended, the last one"),
    Column("lease_length_seconds", Double),
    _time("lease_acquired_at", nullable=True),
    _time("lease_expires_at", nullable=True),
    _time("lease_heartbeat_at", nullable=True),
    Column("lease_heartbeats", Integer),
    Column("progress_fraction", Double),
    Column("progress_message", Text),
    _time("progress_at", nullable=True),
    Column("result", JSON),
    PrimaryKeyConstraint("part", "id"),
    CheckConstraint(_in("state", _STATES), name="state"),
    CheckConstraint("version >= 1", name="version"),
    # One row whose time cannot be compared would stop every reader of many rows.
    CheckConstraint(
        "isfinite(available_at) AND (deadline_at IS NULL OR isfinite(deadline_at))"
        " AND (lease_expires_at IS NULL OR isfinite(lease_expires_at))",
        name="times_are_finite",
    ),
    CheckConstraint("priority BETWEEN -100 AND 100", name="priority"),
    CheckConstraint("attempts BETWEEN 0 AND max_attempts", name="attempts"),
    CheckConstraint("state <> 'queued' OR attempts < max_attempts", name="queued_has_an_attempt_left"),
    CheckConstraint(
        "(state = 'running') = (lease_token_digest IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)"
        " AND (state <> 'running' OR lease_worker_id IS NOT NULL)"
        " AND (state = 'running') = (lease_length_seconds IS NOT NULL)"
        " AND (state = 'running') = (lease_acquired_at IS NOT NULL)",
        name="running_is_leased",
    ),
    CheckConstraint(f"({_in('state', _TERMINAL)}) = (finished_at IS NOT NULL)", name="terminal_is_finished"),
    CheckConstraint(_in("cancel_outcome", _OUTCOMES), name="cancel_outcome"),
    CheckConstraint(
        "(cancel_outcome IS NULL) = (cancel_requested_at IS NULL)"
        " AND (cancel_outcome IS NULL) = (cancel_accepted_version IS NULL)",
        name="cancel_is_whole",
    ),
    CheckConstraint(
        "CASE state WHEN 'running' THEN cancel_outcome IS NULL OR cancel_outcome = 'requested'"
        " WHEN 'canceled' THEN cancel_outcome IS NOT NULL AND cancel_outcome IN ('prevented', 'stopped', 'unconfirmed')"
        " WHEN 'succeeded' THEN cancel_outcome IS NULL OR cancel_outcome = 'finished_first'"
        " ELSE cancel_outcome IS NULL END",
        name="cancel_fits_state",
    ),
    # A heartbeat touches no indexed column: with room on the page it stays a HOT update, and a claim or a completion is
    # logged as a difference. Finished rows pile up, so the vacuum must not wait for a fifth of the table.
    postgresql_with={
        "fillfactor": "60",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_analyze_scale_factor": "0.02",
        "autovacuum_vacuum_cost_delay": "0",
    },
)

Index(
    "jobs_idempotency_key",
    jobs.c.part,
    jobs.c.tenant,
    jobs.c.idempotency_key,
    unique=True,
    postgresql_where=text("idempotency_key IS NOT NULL"),
)
# The claim's order. A lane is one (tenant, queue, kind, priority): within it, due jobs are one range of the index.
Index(
    "jobs_claim",
    jobs.c.part,
    jobs.c.tenant,
    jobs.c.queue,
    jobs.c.kind,
    jobs.c.priority,
    jobs.c.available_at,
    jobs.c.id,
    postgresql_where=_QUEUED,
)
Index("jobs_running", jobs.c.part, jobs.c.id, postgresql_where=_RUNNING)
Index("jobs_ended_badly", jobs.c.part, jobs.c.state, jobs.c.id, postgresql_where=_ENDED_BADLY)
Index("jobs_finished", jobs.c.part, jobs.c.state, jobs.c.finished_at, postgresql_where=text("finished_at IS NOT NULL"))
Index(
    "jobs_deadline",
    jobs.c.part,
    jobs.c.deadline_at,
    postgresql_where=text("state = 'queued' AND deadline_at IS NOT NULL"),
)
Index(
    "jobs_error_fingerprint",
    jobs.c.part,
    jobs.c.error_fingerprint,
    jobs.c.id,
    postgresql_where=_ENDED_BADLY,
)
Index(
    "jobs_concurrency_key",
    jobs.c.part,
    jobs.c.tenant,
    jobs.c.concurrency_key,
    jobs.c.id,
    postgresql_where=text("concurrency_key IS NOT NULL"),
)

events = Table(
    "events",
    metadata,
    Column("part", SmallInteger, nullable=False),
    Column("job_id", Uuid, nullable=False),
    Column("version", Integer, nullable=False),
    _time("at"),
    Column("type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False),
    Column("worker_id", Text),
    Column("detail", JSON),
    Column("token_digest", LargeBinary, comment="of the lease that this event began or ended"),
    Column("outcome_digest", LargeBinary, comment="of what the holder reported: a repeat is answered from it"),
    PrimaryKeyConstraint("part", "job_id", "version", "at"),
    postgresql_partition_by="RANGE (at)",
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("part", SmallInteger, nullable=False),
    Column("job_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("location", Text, nullable=False, comment="the key within the artifact store"),
    Column("bytes", BigInteger, nullable=False),
    Column("rows", BigInteger),
    Column("sha256", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    _time("created_at"),
    PrimaryKeyConstraint("part", "job_id", "name"),
)

queues = Table(
    "queues",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    _time("paused_at", nullable=True),
    Column("paused_by", Text),
    Column("pause_reason", Text),
    _time("created_at"),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant", "name"),
)

workers = Table(
    "workers",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("queues", ARRAY(Text), nullable=False),
    Column("kinds", ARRAY(Text), comment="NULL: any kind"),
    Column("capacity", Integer),
    Column("version", Text),
    Column("host", Text),
    Column("directive", Text, comment="what an operator told it; it hears with its next claim or heartbeat"),
    _time("directed_at", nullable=True),
    Column("directed_by", Text),
    Column("directive_reason", Text),
    _time("first_seen_at"),
    _time("last_seen_at"),
    PrimaryKeyConstraint("tenant", "id"),
    CheckConstraint(_in("directive", ["quiet", "terminate"]), name="directive"),
    CheckConstraint("(directive IS NULL) = (directed_at IS NULL)", name="directive_is_whole"),
)
