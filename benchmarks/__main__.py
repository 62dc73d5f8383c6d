"""``python -m benchmarks``: see README.md in this folder, or ``--help``."""

import asyncio
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.modes.mode import Profile
from benchmarks.modes.roster import MODES
from benchmarks.run import Plan, carry_out
from benchmarks.server import NotDurable
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.tables import markdown, terminal
from tenure.embedded import EmbeddedPostgresError

RESULTS = Path(__file__).parent / "results"

_ROUNDS = 3

console = Console()


def measure(
    modes: Annotated[
        list[str] | None, typer.Argument(help=f"of {', '.join(MODES)}; none: all", show_default=False)
    ] = None,
    subjects: Annotated[str, typer.Option(help=f"by commas, of {', '.join(SUBJECTS)}; none: all installed")] = "",
    profile: Annotated[Profile, typer.Option(help="how much time there is")] = Profile.FULL,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each case; medians are shown")] = _ROUNDS,
    only: Annotated[str, typer.Option(help="cases whose name holds this")] = "",
    jobs: Annotated[int, typer.Option(help="jobs of a case; 0: its own number")] = 0,
    large: Annotated[bool, typer.Option("--large", help="also cases that need minutes and gigabytes")] = False,
    postgres: Annotated[str, typer.Option(help="wheel, system, or a folder of PostgreSQL programs")] = "wheel",
    database_url: Annotated[
        str, typer.Option(envvar="TENURE_BENCH_DATABASE_URL", help="a server of your own; may create databases")
    ] = "",
    out: Annotated[Path, typer.Option(help="folder for the results")] = RESULTS,
    name: Annotated[str, typer.Option(help="name of the results' files")] = "latest",
) -> None:
    """Measure Tenure beside other job queues on PostgreSQL, in turn, on one server, and show medians and ratios."""
    plan = Plan(
        modes=[MODES[one] for one in _chosen(modes or list(MODES), MODES, "mode")],
        subjects=_subjects(subjects),
        profile=profile,
        rounds=rounds,
        only=only,
        jobs=jobs,
        large=large,
    )
    out.mkdir(parents=True, exist_ok=True)
    lines = out / f"{name}.jsonl"
    lines.unlink(missing_ok=True)

    async def carried_out() -> None:
        task = asyncio.current_task()
        assert task is not None
        # Ended by a supervisor, it must still end what it started.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        began = datetime.now(UTC)
        figures, facts = await carry_out(
            plan,
            choice=postgres,
            database_url=database_url,
            lines=lines,
            say=lambda text: console.print(text, style="dim", highlight=False, soft_wrap=True),
        )
        facts = {"began": began.isoformat(timespec="seconds"), "profile": profile, "rounds": rounds, **facts}
        (out / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")
        (out / f"{name}.md").write_text(markdown(figures))
        console.print(terminal(figures, title="Tenure beside others"))

    try:
        asyncio.run(carried_out())
    except (NotDurable, EmbeddedPostgresError) as error:
        console.print(f"[red]error:[/red] {error}")
        sys.exit(2)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


def _chosen(asked: list[str], known: object, what: str) -> list[str]:
    assert hasattr(known, "__contains__")
    unknown = [one for one in asked if one not in known]
    if unknown:
        raise typer.BadParameter(f"there is no {what} {unknown[0]!r}")
    return asked


def _subjects(asked: str) -> list[Subject]:
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if not names:
        return [subject for subject in SUBJECTS.values() if subject.installed]
    chosen = [SUBJECTS[name] for name in _chosen(names, SUBJECTS, "subject")]
    missing = [subject.name for subject in chosen if not subject.installed]
    if missing:
        raise typer.BadParameter(f"not installed: {', '.join(missing)}; run `make bench-install`")
    return chosen


if __name__ == "__main__":
    typer.run(measure)
