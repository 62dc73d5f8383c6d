"""Cheaper transitions: room on the page for a job's next version, and the last holder's name stays in the row.

A row that changes on its own page is logged as the difference, and needs no second lock record. A completion that need not
read the holder before it clears it is one pass over the rows, not two.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_LEASED = (
    "(state = 'running') = (lease_token_digest IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)"
)
_LENGTH = (
    "(state = 'running') = (lease_length_seconds IS NOT NULL) AND (state = 'running') = (lease_acquired_at IS NOT NULL)"
)


def upgrade() -> None:
    op.execute("ALTER TABLE jobs SET (fillfactor = 60)")
    op.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_running_is_leased_check")
    op.execute(
        "ALTER TABLE jobs ADD CONSTRAINT jobs_running_is_leased_check CHECK"
        f" ({_LEASED} AND (state <> 'running' OR lease_worker_id IS NOT NULL) AND {_LENGTH}) NOT VALID"
    )
    op.execute("ALTER TABLE jobs VALIDATE CONSTRAINT jobs_running_is_leased_check")
    op.execute("COMMENT ON COLUMN jobs.lease_worker_id IS 'the holder; once the lease has ended, the last one'")


def downgrade() -> None:
    op.execute("UPDATE jobs SET lease_worker_id = NULL WHERE state <> 'running'")
    op.execute("COMMENT ON COLUMN jobs.lease_worker_id IS NULL")
    op.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_running_is_leased_check")
    op.execute(
        "ALTER TABLE jobs ADD CONSTRAINT jobs_running_is_leased_check CHECK"
        f" ({_LEASED} AND (state = 'running') = (lease_worker_id IS NOT NULL) AND {_LENGTH})"
    )
    op.execute("ALTER TABLE jobs SET (fillfactor = 80)")
