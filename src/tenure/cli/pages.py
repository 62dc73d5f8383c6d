"""Pages of docs/ that are printed from the code, so that they cannot drift from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tenure.cli.output import fail, out
from tenure.errors import ConfigurationError
from tenure.jobs.lifecycle import TERMINAL_STATES, TRANSITIONS, State, Transition
from tenure.settings import GROUPS, PREFIX, fields, shown_value

_BY_HAND = "<!-- Printed from the code by `make docs`; do not edit. -->\n"


def docs(
    check: Annotated[bool, typer.Option("--check", help="write nothing; fail when a page is out of step")] = False,
) -> int:
    """Print the pages of docs/ that come from the code."""
    folder = Path("docs")
    if not folder.is_dir():
        raise ConfigurationError("there is no docs/ here: run this in the project's own folder")
    stale = [name for name, page in PAGES.items() if not _same(folder / name, page())]
    if check:
        for name in stale:
            fail(f"docs/{name} is out of step with the code: run `make docs`")
        return 1 if stale else 0
    for name in stale:
        (folder / name).write_text(PAGES[name](), encoding="utf-8")
        out.print(f"wrote docs/{name}")
    return 0


def lifecycle_page() -> str:
    """The state machine as a drawing and as a table."""
    arrows = [
        f"    {source} --> {target}: {transition.event}"
        for transition in TRANSITIONS
        for source in _ordered(transition.sources) or ["[*]"]
        for target in _ordered(transition.targets)
    ]
    ends = [f"    {state} --> [*]" for state in _ordered(TERMINAL_STATES)]
    rows = [_row(transition) for transition in TRANSITIONS]
    return "\n".join(
        [
            "# The life of a job",
            "",
            _BY_HAND,
            "Six states. Scheduled, backing off, blocked and paused are reasons why a queued job waits, not states.",
            "`failed` is an answer for whoever submitted the job; `dead` is an operator's inbox.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *arrows,
            *ends,
            "```",
            "",
            "Every row below is one event in the job's history, written in the same transaction as the change itself. A",
            "heartbeat is the one thing that leaves no event: the lease counts it. **Fenced** means that on a running job only",
            "the holder of the current lease token can cause it; everyone else is told `409 lease-lost`.",
            "",
            "| event | from | to | who | fenced | only if | what it does |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "A state that is not in `from` refuses the event and nothing changes. Terminal is terminal, save `manual_retry`.",
            "",
        ]
    )


def configuration_page() -> str:
    """Every setting, by group."""
    lines = [
        "# Configuration",
        "",
        _BY_HAND,
        "Settings are environment variables, read once at start. A wrong value is named, with what it may be; an empty",
        "variable is as good as none. Durations are in seconds. `tenure settings` shows what is in force.",
        "",
    ]
    for group, model in GROUPS.items():
        lines += [f"## {group}", "", str(model.__doc__), "", "| variable | default | what it is |", "|---|---|---|"]
        lines += [
            f"| `{PREFIX}{field.alias}` | {_default(field)} | {field.description} |"
            for owner, _, field in fields()
            if owner == group
        ]
        lines.append("")
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {"lifecycle.md": lifecycle_page, "configuration.md": configuration_page}


def _row(transition: Transition) -> str:
    cells = [
        f"`{transition.event}`",
        ", ".join(_ordered(transition.sources)) or "–",
        ", ".join(_ordered(transition.targets)),
        transition.by,
        "yes" if transition.fenced else "",
        transition.guard,
        transition.effect,
    ]
    return f"| {' | '.join(cells)} |"


def _ordered(states: frozenset[State]) -> list[str]:
    return [str(state) for state in State if state in states]


def _default(field: Any) -> str:
    shown = shown_value(str(field.alias), field.default)
    if isinstance(shown, float) and shown.is_integer():
        shown = int(shown)
    text = str(shown).lower() if isinstance(shown, bool) else str(shown)
    return f"`{text}`" if text not in {"", "None"} else "–"


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
