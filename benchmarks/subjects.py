"""Who is measured: Tenure, the minimal loop, and the peers; how each is started."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Command
from benchmarks.recording import RECORD_FOLDER

TENURE = "tenure"
MINIMAL = "minimal"
NOOP_ENDPOINT = "noop-endpoint"

TUNED_SLOTS = "1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One queue: its name here, and the script that speaks for it. ``needs`` is what must be installed."""

    name: str
    title: str
    script: str
    needs: str = ""
    modes: frozenset[str] | None = None
    """What it can be measured in; None means all."""

    @property
    def installed(self) -> bool:
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def action(self, action: str, *options: str, database_url: str = "", tuned: bool = False) -> Command:
        """What does one action of the subject's script, see `benchmarks.peers.peer`."""
        given = [f"--database-url={database_url}"] if database_url else []
        start = [sys.executable, "-m", f"benchmarks.peers.{self.script}", action]
        return Command(arguments=[*start, *given, *(["--tuned"] if tuned else []), *options])

    def worker(self, database_url: str, records: Path, *, tuned: bool) -> Command:
        """A process of workers that write to ``records``."""
        if self.name == TENURE:
            slots = {"WORKER_SLOTS": TUNED_SLOTS} if tuned else {}
            return tenure(["worker"], database_url=database_url, records=records, **slots)
        started = self.action("work", database_url=database_url, tuned=tuned)
        environment = {**started.environment, RECORD_FOLDER: str(records)}
        return Command(arguments=started.arguments, environment=environment)


def tenure(arguments: Sequence[str], *, records: Path, database_url: str = "", **settings: str) -> Command:
    """``tenure <arguments>`` with the kinds of `benchmarks.application`, as an operator starts it.

    ``settings`` are Tenure's variables without their prefix; what is not given stays at its default.
    """
    environment: Mapping[str, str] = {
        **({"TENURE_DATABASE_URL": database_url} if database_url else {}),
        "TENURE_DATA_DIR": str(records / "data"),
        "TENURE_APP": "benchmarks.application:jobs",
        RECORD_FOLDER: str(records),
        **{f"TENURE_{name}": value for name, value in settings.items()},
    }
    return Command(arguments=[sys.executable, "-m", "tenure", *arguments], environment=environment)


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(name=TENURE, title="Tenure", script="tenure_library"),
        Subject(name=MINIMAL, title="minimal loop", script="minimal"),
        Subject(name="pgqueuer", title="PgQueuer", script="pgqueuer", needs="pgqueuer"),
        Subject(name="procrastinate", title="Procrastinate", script="procrastinate", needs="procrastinate"),
        Subject(name=NOOP_ENDPOINT, title="FastAPI, nothing stored", script="none", modes=frozenset({"enqueue"})),
    )
}
