"""The first schema: jobs, their events by day, artifacts, queues.

`part` leads every key (see `store/tables.py`); the daily partitions of `events` are made by maintenance, at start and then
every hour, and the DEFAULT one takes what comes before that.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE jobs (
        part SMALLINT NOT NULL,
        id UUID NOT NULL,
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        queue TEXT NOT NULL,
        priority SMALLINT NOT NULL,
        schema_version INTEGER NOT NULL,
        max_attempts SMALLINT NOT NULL,
        timeout_seconds DOUBLE PRECISION,
        lease_seconds DOUBLE PRECISION,
        payload JSON NOT NULL,
        tags TEXT[] NOT NULL,
        metadata JSON NOT NULL,
        idempotency_key TEXT,
        request_digest BYTEA,
        concurrency_key TEXT,
        submitted_by TEXT,
        traceparent TEXT,
        created_at timestamptz NOT NULL,
        deadline_at timestamptz,
        available_at timestamptz NOT NULL,
        releases SMALLINT NOT NULL,
        cancel_outcome TEXT,
        cancel_reason TEXT,
        cancel_requested_by TEXT,
        cancel_requested_at timestamptz,
        cancel_delivered_at timestamptz,
        cancel_confirmed_at timestamptz,
        cancel_accepted_version INTEGER,
        last_error JSON,
        error_fingerprint TEXT,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        attempts SMALLINT NOT NULL,
        updated_at timestamptz NOT NULL,
        started_at timestamptz,
        finished_at timestamptz,
        lease_token_digest BYTEA,
        lease_worker_id TEXT,
        lease_length_seconds DOUBLE PRECISION,
        lease_acquired_at timestamptz,
        lease_expires_at timestamptz,
        lease_heartbeat_at timestamptz,
        lease_heartbeats INTEGER,
        progress_fraction DOUBLE PRECISION,
        progress_message TEXT,
        progress_at timestamptz,
        result JSON,
        CONSTRAINT jobs_pkey PRIMARY KEY (part, id),
        CONSTRAINT jobs_state_check CHECK (
            state IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'dead')
        ),
        CONSTRAINT jobs_version_check CHECK (version >= 1),
        CONSTRAINT jobs_times_are_finite_check CHECK (
            isfinite(available_at) AND (deadline_at IS NULL OR isfinite(deadline_at))
            AND (lease_expires_at IS NULL OR isfinite(lease_expires_at))
        ),
        CONSTRAINT jobs_priority_check CHECK (priority BETWEEN -100 AND 100),
        CONSTRAINT jobs_attempts_check CHECK (attempts BETWEEN 0 AND max_attempts),
        CONSTRAINT jobs_queued_has_an_attempt_left_check CHECK (state <> 'queued' OR attempts < max_attempts),
        CONSTRAINT jobs_running_is_leased_check CHECK (
            (state = 'running') = (lease_token_digest IS NOT NULL)
            AND (state = 'running') = (lease_expires_at IS NOT NULL)
            AND (state = 'running') = (lease_worker_id IS NOT NULL)
            AND (state = 'running') = (lease_length_seconds IS NOT NULL)
            AND (state = 'running') = (lease_acquired_at IS NOT NULL)
        ),
        CONSTRAINT jobs_terminal_is_finished_check CHECK (
            (state IN ('succeeded', 'failed', 'canceled', 'dead')) = (finished_at IS NOT NULL)
        ),
        CONSTRAINT jobs_cancel_outcome_check CHECK (
            cancel_outcome IN ('prevented', 'requested', 'stopped', 'finished_first', 'unconfirmed')
        ),
        CONSTRAINT jobs_cancel_is_whole_check CHECK (
            (cancel_outcome IS NULL) = (cancel_requested_at IS NULL)
            AND (cancel_outcome IS NULL) = (cancel_accepted_version IS NULL)
        ),
        CONSTRAINT jobs_cancel_fits_state_check CHECK (
            CASE state
            WHEN 'running' THEN cancel_outcome IS NULL OR cancel_outcome = 'requested'
            WHEN 'canceled' THEN cancel_outcome IS NOT NULL AND cancel_outcome IN ('prevented', 'stopped', 'unconfirmed')
            WHEN 'succeeded' THEN cancel_outcome IS NULL OR cancel_outcome = 'finished_first'
            ELSE cancel_outcome IS NULL END
        )
    ) WITH (
        fillfactor = 80,
        autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_analyze_scale_factor = 0.02,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    """
    COMMENT ON COLUMN jobs.releases IS 'releases and snoozes so far: capped, then they count'
    """,
    """
    COMMENT ON COLUMN jobs.lease_seconds IS 'what was asked for; the lease that runs is in lease_length_seconds'
    """,
    """
    COMMENT ON COLUMN jobs.lease_token_digest IS 'of the current holder''s token, which itself is stored nowhere'
    """,
    """
    COMMENT ON COLUMN jobs.cancel_accepted_version IS 'the version that the first request met'
    """,
    """
    COMMENT ON COLUMN jobs.error_fingerprint IS 'of last_error, for grouping'
    """,
    """
    COMMENT ON COLUMN jobs.request_digest IS 'of the body sent with the idempotency key'
    """,
    """
    CREATE INDEX jobs_claim ON jobs (part, tenant, queue, kind, priority, available_at, id) WHERE state = 'queued'
    """,
    """
    CREATE INDEX jobs_concurrency_key ON jobs (part, tenant, concurrency_key, id) WHERE concurrency_key IS NOT NULL
    """,
    """
    CREATE INDEX jobs_deadline ON jobs (part, deadline_at) WHERE state = 'queued' AND deadline_at IS NOT NULL
    """,
    """
    CREATE INDEX jobs_ended_badly ON jobs (part, state, id) WHERE state IN ('failed', 'canceled', 'dead')
    """,
    """
    CREATE INDEX jobs_error_fingerprint ON jobs (part, error_fingerprint, id) WHERE state IN ('failed', 'canceled', 'dead')
    """,
    """
    CREATE INDEX jobs_finished ON jobs (part, state, finished_at) WHERE finished_at IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX jobs_idempotency_key ON jobs (part, tenant, idempotency_key) WHERE idempotency_key IS NOT NULL
    """,
    """
    CREATE INDEX jobs_running ON jobs (part, id) WHERE state = 'running'
    """,
    """
    CREATE TABLE events (
        part SMALLINT NOT NULL,
        job_id UUID NOT NULL,
        version INTEGER NOT NULL,
        at timestamptz NOT NULL,
        type TEXT NOT NULL,
        state TEXT NOT NULL,
        attempt SMALLINT NOT NULL,
        worker_id TEXT,
        detail JSON,
        token_digest BYTEA,
        outcome_digest BYTEA,
        CONSTRAINT events_pkey PRIMARY KEY (part, job_id, version, at)
    ) PARTITION BY RANGE (at)
    """,
    """
    COMMENT ON COLUMN events.token_digest IS 'of the lease that this event began or ended'
    """,
    """
    COMMENT ON COLUMN events.outcome_digest IS 'of what the holder reported: a repeat is answered from it'
    """,
    """
    CREATE TABLE events_default PARTITION OF events DEFAULT
    """,
    """
    CREATE TABLE artifacts (
        part SMALLINT NOT NULL,
        job_id UUID NOT NULL,
        name TEXT NOT NULL,
        location TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        rows BIGINT,
        sha256 TEXT NOT NULL,
        content_type TEXT NOT NULL,
        created_at timestamptz NOT NULL,
        CONSTRAINT artifacts_pkey PRIMARY KEY (part, job_id, name)
    )
    """,
    """
    COMMENT ON COLUMN artifacts.location IS 'the key within the artifact store'
    """,
    """
    CREATE TABLE queues (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        paused_at timestamptz,
        paused_by TEXT,
        pause_reason TEXT,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        CONSTRAINT queues_pkey PRIMARY KEY (tenant, name)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for table in ("queues", "artifacts", "events", "jobs"):
        op.execute(f"DROP TABLE {table}")
