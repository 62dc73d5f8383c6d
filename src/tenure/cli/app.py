"""All commands under one name, and what every one of them does with an error: one sentence, and a code that means it."""

import errno
import io
import os
import sys
import traceback
from typing import Any

import typer

from tenure.cli import demo, inspect, jobs, operate, pages, serve, verify_worker
from tenure.cli.output import fail
from tenure.client import ServiceUnreachable
from tenure.embedded import EmbeddedPostgresError
from tenure.errors import (
    ConfigurationError,
    Conflict,
    InvalidInput,
    NotFound,
    TenureError,
    Unavailable,
    VersionMismatch,
)

_WrongUsage: Any = typer.BadParameter.__base__
"""Typer carries a Click of its own, or depends on one: what both call wrong usage is found by way of Typer's own name."""

_FULL = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT})

DONE, REFUSED, USAGE, UNREACHABLE, NOT_FOUND, CONFLICT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

app = typer.Typer(
    name="tenure",
    help="A job queue on PostgreSQL that can always say where a job is, who holds it, and why it died.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("migrate")(serve.migrate)
app.command("demo")(demo.demo)
app.command("verify-worker")(verify_worker.verify_worker)
app.add_typer(jobs.app, name="jobs")
app.add_typer(operate.dead_app, name="dead")
app.command("retry")(operate.retry)
app.command("cancel")(operate.cancel)
app.command("settings")(inspect.settings)
app.command("openapi")(inspect.openapi)
app.command("database-url")(inspect.database_url)
app.command("version")(inspect.version)
app.command("docs", hidden=True)(pages.docs)


def main() -> None:
    """The ``tenure`` command: never a stack trace for what the user can mend."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # On a terminal that is not UTF-8, a sign that it lacks is spelled out.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command; returns its exit code."""
    try:
        result: Any = app(arguments, standalone_mode=False)
        sys.stdout.flush()
    except typer.Exit as exited:
        return exited.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except _WrongUsage as error:
        error.show()
        return USAGE
    except BrokenPipeError:
        return _no_reader()
    except SystemExit as exited:
        # What Typer makes of a broken pipe.
        if not isinstance(exited.__context__, BrokenPipeError):
            raise
        return _no_reader()
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            fail(f"the output cannot be written: {error.strerror}")
            _no_reader()
            return REFUSED
        code = _code_of(error)
        if code is None:
            traceback.print_exc()
            fail("this is a bug in Tenure, not in what you did; the lines above help whoever mends it")
            return REFUSED
        fail(_sentence(error), _hints(error))
        return code
    return result if isinstance(result, int) else 0


def _no_reader() -> int:
    """The reader of our output (head, less) has had enough; what is still to be flushed must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _code_of(error: Exception) -> int | None:
    match error:
        case ConfigurationError() | EmbeddedPostgresError():
            return USAGE
        case ServiceUnreachable() | Unavailable():
            return UNREACHABLE
        case NotFound():
            return NOT_FOUND
        case Conflict() | VersionMismatch():
            return CONFLICT
        case TenureError():
            return REFUSED
        case OSError() if error.filename is not None:
            return REFUSED
        case _:
            return None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _hints(error: Exception) -> list[str]:
    if isinstance(error, InvalidInput):
        return [f"{field.pointer}: {field.message}" for field in error.errors]
    return []
