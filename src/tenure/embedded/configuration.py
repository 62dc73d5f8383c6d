"""What the embedded server is told: sized to the machine, durable, local, and with a log that cannot grow for ever."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tenure.embedded.process import EmbeddedPostgresError

FILE_NAME = "tenure.conf"

_MEGABYTE = 1024 * 1024
_SHARED_BUFFERS_LIMIT = 1024 * _MEGABYTE
_SHARED_BUFFERS_FLOOR = 16 * _MEGABYTE
_NAME = re.compile(r"[a-z_][a-z0-9_.]*\Z")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# Durability and privacy are what the rest of Tenure promises on; where things lie is this package's own business.
_FIXED = frozenset(
    {
        "data_directory",
        "fsync",
        "full_page_writes",
        "hba_file",
        "listen_addresses",
        "log_directory",
        "log_filename",
        "logging_collector",
        "port",
        "unix_socket_directories",
        "unix_socket_permissions",
    }
)


def checked_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's settings, if all may be set. Raises EmbeddedPostgresError for a fixed or an ill-formed one."""
    for name, value in settings.items():
        if name in _FIXED:
            raise EmbeddedPostgresError(
                f"{name} of the embedded PostgreSQL cannot be changed: use a server of your own"
            )
        if not _NAME.match(name) or set("\n\0") & set(value):
            raise EmbeddedPostgresError(f"{name!r} = {value!r} is not a setting of PostgreSQL")
    return dict(settings)


def configuration(*, socket_dir: Path, log_dir: Path, settings: Mapping[str, str]) -> str:
    """The text of ``tenure.conf``, which postgresql.conf includes. ``settings`` go over the defaults."""
    defaults = {
        # Every process of a service has a pool of its own; an idle connection costs about 2 MB.
        "max_connections": "200",
        "shared_buffers": f"{_shared_buffers_bytes() // _MEGABYTE}MB",
        # A queue rewrites its rows: rarer checkpoints save most of the full page images.
        "max_wal_size": "4GB",
        "wal_compression": "on",
        # Claims slow down as dead rows gather; the default minute is long at thousands of jobs a second.
        "autovacuum_naptime": "15s",
        # A transaction left open keeps vacuum from removing anything.
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %q%u@%d ",
    }
    fixed = {
        "fsync": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
        # One file for each hour of the day, begun anew when its hour comes again. PostgreSQL truncates on a change by
        # time only: with a limit by size it would either append to the same name or never remove a file.
        "logging_collector": "on",
        "log_directory": str(log_dir),
        "log_filename": "postgres-%H.log",
        "log_rotation_age": "60",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
        "log_file_mode": "0600",
    }
    chosen = defaults | dict(settings) | fixed
    lines = [f"{name} = {_quoted(value)}" for name, value in chosen.items()]
    return "\n".join(["# Written anew at every start: use ALTER SYSTEM for changes that are to stay.", *lines, ""])


def _quoted(value: str) -> str:
    doubled = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def _shared_buffers_bytes() -> int:
    """A quarter of the memory that this machine, or this container, has; at most 1 GB."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in _CGROUP_LIMITS:
        try:
            memory = min(memory, int(limit.read_text()))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return max(_SHARED_BUFFERS_FLOOR, min(_SHARED_BUFFERS_LIMIT, memory // 4))
