"""The ledger: append-only files of what callers were told, what handlers did, and what was broken, outside the product.

One file a process, one JSON line a fact, each line one write to a file opened with O_APPEND: a process that is killed
leaves whole lines, and at most one torn one at the end. No fsync: it is processes that are killed here, not the machine.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

Fact = dict[str, Any]
"""``at`` (seconds since the epoch), ``fact`` (its name), and what belongs to it."""


class Ledger:
    """One process's file in the folder; opened at the first fact, again after a fork."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name
        self._opened: tuple[int, int] | None = None

    def note(self, fact: str, **fields: Any) -> float:
        """Writes the fact down; returns its time. It is in the file when this returns."""
        at = time.time()
        line = orjson.dumps({"at": at, "fact": fact, **fields}) + b"\n"
        written = os.write(self._descriptor(), line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes of a fact were written")
        return at

    def _descriptor(self) -> int:
        pid = os.getpid()
        if self._opened is None or self._opened[0] != pid:
            path = self.folder / f"{self._name}-{pid}.jsonl"
            self._opened = pid, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._opened[1]


def read_facts(folder: Path) -> list[Fact]:
    """All facts of all processes, in the order of their times."""
    return sorted(
        (fact for path in sorted(folder.glob("*.jsonl")) for fact in _lines(path)), key=lambda fact: fact["at"]
    )


def _lines(path: Path) -> Iterator[Fact]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # the one without was torn by a kill
                yield orjson.loads(line)
