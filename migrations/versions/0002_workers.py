"""Workers: who claims, what they serve, when they were last seen, and what an operator told them to do."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE workers (
        tenant TEXT NOT NULL,
        id TEXT NOT NULL,
        queues TEXT[] NOT NULL,
        kinds TEXT[],
        capacity INTEGER,
        version TEXT,
        host TEXT,
        directive TEXT,
        directed_at timestamptz,
        directed_by TEXT,
        directive_reason TEXT,
        first_seen_at timestamptz NOT NULL,
        last_seen_at timestamptz NOT NULL,
        CONSTRAINT workers_pkey PRIMARY KEY (tenant, id),
        CONSTRAINT workers_directive_check CHECK (directive IN ('quiet', 'terminate')),
        CONSTRAINT workers_directive_is_whole_check CHECK ((directive IS NULL) = (directed_at IS NULL))
    )
    """,
    "COMMENT ON COLUMN workers.kinds IS 'NULL: any kind'",
    "COMMENT ON COLUMN workers.directive IS 'what an operator told it; it hears with its next claim or heartbeat'",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE workers")
