"""Builds of Tenure for the harness: the product, with something changed when its process starts.

``CHAOS_BUILD`` names the changes, by commas. Only the harness's own entry points read it (`entry.py`, `zygote.py`); the
product knows nothing of it.

``next=<folder>`` is the version after this one, as far as a deploy can tell: its schema has one revision more, and its
migrations are in that folder (`make_next`).
``clock=<seconds>`` runs with a clock that is off by so much. Every other name is a fault of `faults.py`.
"""

import shutil
import time
from collections.abc import MutableMapping
from pathlib import Path

from tenure.store import schema
from tests.chaos.faults import FAULTS

BUILD = "CHAOS_BUILD"

NEXT_REVISION = "9999"
_NEXT = '''"""What the next version might need: a column and an index that this version does not know."""

from alembic import op

revision = "{revision}"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE jobs ADD COLUMN chaos_note TEXT")
    op.execute("ALTER TABLE events ADD COLUMN chaos_note TEXT")
    op.execute("CREATE INDEX jobs_chaos_note ON jobs (part, chaos_note) WHERE chaos_note IS NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE jobs DROP COLUMN chaos_note")
    op.execute("ALTER TABLE events DROP COLUMN chaos_note")
'''


def make_next(folder: Path) -> str:
    """Writes the next version's migrations into this new folder; returns the build that uses them."""
    shutil.copytree(schema._migrations_directory(), folder)
    revision = folder / "versions" / f"{NEXT_REVISION}_next.py"
    revision.write_text(_NEXT.format(revision=NEXT_REVISION, head=schema.head_revision()))
    return f"next={folder}"


def apply_build(environment: MutableMapping[str, str]) -> None:
    """Makes this process the build that the environment names. Raises KeyError for one that does not exist."""
    for change in filter(None, environment.pop(BUILD, "").split(",")):
        name, _, value = change.partition("=")
        if name == "next":
            _migrate_from(Path(value))
        elif name == "clock":
            _set_clock(float(value))
        else:
            FAULTS[name].seed()


def _migrate_from(folder: Path) -> None:
    setattr(schema, "_migrations_directory", lambda: folder)  # noqa: B010 - for the type checker it is final


def _set_clock(seconds: float) -> None:
    real, real_ns = time.time, time.time_ns
    setattr(time, "time", lambda: real() + seconds)  # noqa: B010 - as above
    setattr(time, "time_ns", lambda: real_ns() + round(seconds * 1_000_000_000))  # noqa: B010 - as above
