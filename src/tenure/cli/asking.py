"""Commands that ask a service: its address, and the choice between a table and JSON."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import typer
from pydantic import BaseModel

from tenure.client import Client
from tenure.settings import load

UrlOption = Annotated[str | None, typer.Option("--url", help="the service; default TENURE_URL", metavar="URL")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON document, for programs")]
_RETRY_FOR_SECONDS = 1.0

WaitOption = Annotated[float, typer.Option("--wait", help="seconds to wait for the end", min=0, max=60)]


def _job_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a job's id: that is a UUID, as `tenure jobs list` shows it"
        ) from None


JobId = Annotated[str, typer.Argument(metavar="ID", help="the job's id", parser=_job_id)]


@contextmanager
def service(url: str | None) -> Iterator[Client]:
    """A client of the service that is meant. Whoever sits at a terminal is told soon when nobody answers."""
    with Client(load(os.environ, URL=url).client.url, retry_for_seconds=_RETRY_FOR_SECONDS) as client:
        yield client


def document(answer: BaseModel) -> dict[str, Any]:
    """What the service answered, as JSON values."""
    return answer.model_dump(mode="json", exclude_unset=True)
