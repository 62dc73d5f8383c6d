"""The runs that there are: a slice for every build, one of any length, and the long one."""

from tests.chaos.run import Plan

CI = Plan(
    name="ci",
    seconds=30.0,
    per_second=15.0,
    faults={
        "worker_kill": 20,
        "server_kill": 5,
        "postgres_kill": 2,
        "postgres_immediate": 1,
        "line_cut": 4,
        "commit_cut": 8,
        "worker_pause": 2,
        "server_pause": 1,
        "sessions_end": 1,
        "postgres_read_only": 1,
        "line_frozen": 1,
        "rows_locked": 2,
        "worker_end": 1,
    },
)

_PER_MINUTE = {
    "worker_kill": 12.0,
    "server_kill": 3.0,
    "postgres_kill": 1.0,
    "postgres_immediate": 0.6,
    "postgres_restart": 0.4,
    "postgres_read_only": 0.6,
    "sessions_end": 1.5,
    "rows_locked": 2.0,
    "line_cut": 5.0,
    "line_refused": 1.5,
    "line_frozen": 1.5,
    "line_slow": 1.0,
    "commit_cut": 8.0,
    "worker_pause": 3.0,
    "server_pause": 1.0,
    "worker_end": 1.5,
    "server_end": 0.6,
}


def mixed(minutes: float, *, per_second: float = 40.0, jobs: int = 1_000_000, zygote: bool = True) -> Plan:
    """Everything, for so many minutes."""
    return Plan(
        name=f"mixed, {minutes:g} min",
        seconds=minutes * 60.0,
        per_second=per_second,
        jobs=jobs,
        batch_jobs=20,
        workers=4,
        faults={name: max(round(rate * minutes), 1) for name, rate in _PER_MINUTE.items()},
        end_seconds=180.0,
        zygote=zygote,
    )
