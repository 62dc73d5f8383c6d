"""What people see: tables and colour on a terminal, plain lines elsewhere; JSON for programs."""

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# A file or a pipe is no eighty columns wide: there, one line is one fact.
_WIDTH = None if sys.stdout.isatty() else 240
out = Console(highlight=False, soft_wrap=True, width=_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_WIDE = 130
"""From so many columns on, what is known about a job has room beside it; on less it goes below."""

_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_DELETE_AND_C1 = re.compile(r"[\x7f-\x9f]")

STATE_STYLES = {
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "yellow",
    "canceled": "bright_black",
    "dead": "red",
}


def fail(message: str, hints: Sequence[str] = ()) -> None:
    """One sentence on stderr, and what helps."""
    err.print(f"[red]error:[/red] {plain(message)}")
    for hint in hints:
        err.print(f"  {plain(hint)}")


def plain(text: object) -> str:
    """Text of others as it may stand on a terminal: no markup of ours in it, and no control sequence of anybody's."""
    return escape(_CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text)))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(_document(value, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    """One of many JSON documents, a line each; it is out before the next one is known."""
    sys.stdout.write(_document(value, indent=None) + "\n")
    sys.stdout.flush()


def _document(value: Any, *, indent: int | None) -> str:
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not is_unicode, indent=indent)
    # JSON leaves these as they are, and some terminals obey them.
    return _DELETE_AND_C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def state(name: str) -> str:
    """A state in its colour."""
    style = STATE_STYLES.get(name, "default")
    return f"[{style}]{name}[/{style}]"


def ago(moment: str | None) -> str:
    """A time as a person says it: "12 s ago", "in 3 min"."""
    if moment is None:
        return "–"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    words = span(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def span(seconds: float) -> str:
    """A duration in the unit that fits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def size(count: int) -> str:
    """Bytes in the unit that fits them."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("not reached")


def jobs_table(jobs: Sequence[dict[str, Any]]) -> RenderableType:
    """Jobs, a line each; on a narrow terminal what is known about one stands on a line of its own."""
    if out.width >= _WIDE:
        table = _table("id", "kind", "queue", "state", "tries", "created", "what is known")
        for job in jobs:
            table.add_row(*_cells(job), plain(remark(job)))
        return table
    lines: list[RenderableType] = []
    for job in jobs:
        job_id, *cells = _cells(job)
        lines.append(Text.from_markup(f"{job_id}  {'  '.join(cells)}"))
        if known := remark(job):
            lines.append(Padding(Text.from_markup(plain(known), style="dim"), (0, 0, 0, 2)))
    return Group(*lines)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=name != names[-1], overflow="fold")
    return table


def _cells(job: dict[str, Any]) -> tuple[str, ...]:
    tries = f"{job['attempts']}/{job['max_attempts']}"
    return job["id"], plain(job["kind"]), plain(job["queue"]), state(job["state"]), tries, ago(job["created_at"])


def remark(job: dict[str, Any]) -> str:
    """The most telling fact about a job, in one line."""
    error, lease, progress = job["last_error"], job["lease"], job["progress"]
    match job["state"]:
        case "running":
            words = f"held by {lease['worker_id']}, lease ends {ago(lease['expires_at'])}"
            if progress and progress["message"]:
                words += f"; {progress['message']}"
            if job["cancellation"]:
                words += "; asked to stop"
            return words
        case "canceled":
            return f"canceled: {job['cancellation']['outcome']}"
        case "queued" if job["available_at"] > job["updated_at"]:
            why = f"after {error['kind']}: {error['message']}" if error and job["attempts"] else "delayed"
            return f"due {ago(job['available_at'])}, {why}"
        case "failed" | "dead" if error:
            return f"{error['kind']}: {error['message']}".splitlines()[0][:120]
        case _:
            return ""


def timeline(events: Sequence[dict[str, Any]]) -> Table:
    """A job's history, each fact with its distance from the first."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column()
    start = datetime.fromisoformat(events[0]["at"]) if events else None
    for event in events:
        assert start is not None
        offset = (datetime.fromisoformat(event["at"]) - start).total_seconds()
        table.add_row(
            f"[dim]+{span(offset):>7}[/dim]",
            event["type"],
            state(event["state"]),
            f"[dim]{plain(fact(event))}[/dim]",
        )
    return table


def fact(event: dict[str, Any]) -> str:
    """What an event adds to its name."""
    detail = event["detail"]
    words = [f"attempt {event['attempt']}, {event['worker_id']}"] if event["type"] == "leased" else []
    if error := detail.get("error"):
        words.append(f"{error['kind']}: {error['message']}".splitlines()[0])
    if (delay := detail.get("delay_seconds")) is not None:
        words.append(f"again in {span(delay)}")
    words += [f"{name}: {detail[name]}" for name in ("outcome", "reason") if detail.get(name)]
    return ", ".join(words)
