"""How handlers in other processes tell that they ran: each process appends to a file of its own, a reader adds up.

A handler only counts in memory. A thread writes what has come about every 50 ms, so no event loop is shared with what is
measured and no handler waits for a file. All times are `time.time()`: every process is on this machine.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD_FOLDER = "BENCHMARK_RECORD_FOLDER"
"""The variable that names the folder for these files."""

SENT_AT = "sent_at"
"""In a payload: when its job was submitted, by `time.time()`."""

_EVERY_SECONDS = 0.05


class Recorder:
    """Counts the handlers of this process; call it first thing in a handler, with the payload."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}.jsonl"
        self._count = 0
        self._first = 0.0
        self._last = 0.0
        self._delays: list[float] = []

    def __call__(self, payload: Mapping[str, Any]) -> None:
        now = time.time()
        if not self._count:
            self._first = now
        self._count += 1
        self._last = now
        if SENT_AT in payload:
            self._delays.append(now - payload[SENT_AT])

    def start(self) -> None:
        """Begins to write; ends with the process."""
        threading.Thread(target=self._write, name="recorder", daemon=True).start()

    def _write(self) -> None:
        written = 0
        with self._path.open("a") as file:
            while True:
                count = self._count
                if count != written:
                    delays, self._delays = self._delays, []
                    line = {"count": count, "first": self._first, "last": self._last, "delays": delays}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    written = count
                time.sleep(_EVERY_SECONDS)


def recorder_of_environment() -> Recorder:
    """The recorder of a process that was started to be measured; it runs already."""
    recorder = Recorder(Path(os.environ[RECORD_FOLDER]))
    recorder.start()
    return recorder


@dataclass(slots=True)
class Tally:
    """What the handlers of all processes have recorded in ``folder``, as of the last `look`."""

    folder: Path
    delays: list[float] = field(default_factory=list)
    """Seconds from `SENT_AT` to the handler, of every job that carried it."""
    _offsets: dict[Path, int] = field(default_factory=dict)
    _latest: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def look(self) -> int:
        """Reads what is new; returns how many handlers have begun so far."""
        for path in self.folder.glob("*.jsonl"):
            with path.open() as file:
                file.seek(self._offsets.get(path, 0))
                for line in iter(file.readline, ""):
                    if not line.endswith("\n"):  # still being written
                        break
                    latest = json.loads(line)
                    self.delays += latest.pop("delays")
                    self._latest[path] = latest
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
        return self.count

    @property
    def count(self) -> int:
        return sum(latest["count"] for latest in self._latest.values())

    @property
    def first(self) -> float:
        """When the first handler of all began."""
        return min(float(latest["first"]) for latest in self._latest.values())

    @property
    def last(self) -> float:
        """When the last handler so far began."""
        return max(float(latest["last"]) for latest in self._latest.values())
