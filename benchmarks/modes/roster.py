"""All modes, in the order in which they are measured and shown."""

from benchmarks.modes import bulk, drain, enqueue, pickup, remote_drain, transactional
from benchmarks.modes.mode import Mode

MODES: dict[str, Mode] = {mode.name: mode for mode in (
    enqueue.MODE, bulk.MODE, transactional.MODE, drain.MODE, remote_drain.MODE, pickup.MODE)}
