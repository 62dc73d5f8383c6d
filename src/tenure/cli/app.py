"""All commands under one name, and what every one of them does with an error: one sentence, and a code that means it."""

import sys
from typing import Any

import click
import typer

from tenure.cli import demo, inspect, jobs, operate, pages, serve
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

REFUSED, USAGE, UNREACHABLE, NOT_FOUND, CONFLICT, INTERRUPTED = 1, 2, 3, 4, 5, 130

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
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command; returns its exit code."""
    try:
        result: Any = app(arguments, standalone_mode=False)
    except click.exceptions.Exit as exited:
        return exited.exit_code
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has had enough.
        sys.stderr.close()
        return 0
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        fail(str(error), _hints(error))
        return code
    return result if isinstance(result, int) else 0


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
        case _:
            return None


def _hints(error: Exception) -> list[str]:
    if isinstance(error, InvalidInput):
        return [f"{field.pointer}: {field.message}" for field in error.errors]
    return []
