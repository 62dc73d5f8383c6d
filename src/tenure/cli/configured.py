"""Settings for a command: the environment, what the command line overrides, and the log."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from tenure.cli.output import err
from tenure.settings import Settings, load, unknown_variables


def configured(**overrides: Any) -> Settings:
    """The settings; a variable that looks like a mistake is pointed out. Raises ConfigurationError."""
    settings = load(os.environ, **overrides)
    for sentence in unknown_variables(os.environ):
        err.print(f"[yellow]note:[/yellow] {sentence}")
    return settings


def log_to_stderr(settings: Settings) -> None:
    """Lines for people, or JSON lines for programs."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.process.log_format == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=settings.process.log_level.upper(), handlers=[handler], force=True)
    # What libraries tell at this level concerns their authors.
    for name in ("alembic", "httpx", "httpcore", "asyncio", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
