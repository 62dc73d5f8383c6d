"""All modes, in the order in which they are measured and shown."""

from benchmarks.modes import (
    bulk,
    claim_cost,
    drain,
    enqueue,
    heartbeats,
    held_snapshot,
    idle,
    memory,
    pickup,
    remote_drain,
    transactional,
    wal,
)
from benchmarks.modes.mode import Mode

MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        enqueue.MODE,
        bulk.MODE,
        transactional.MODE,
        drain.MODE,
        remote_drain.MODE,
        pickup.MODE,
        claim_cost.MODE,
        held_snapshot.MODE,
        heartbeats.MODE,
        wal.MODE,
        idle.MODE,
        memory.MODE,
    )
}
