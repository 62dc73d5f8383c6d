"""The command line as its users have it: called in this process, or as a process of its own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.app import run

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b"
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout: one JSON document and nothing else."""
        return json.loads(self.out)

    def assert_plain(self) -> None:
        """No trace, and nothing that steers a terminal."""
        for text in (self.out, self.err):
            assert "Traceback" not in text, text
            assert not _CONTROLS.search(text), text


class Tenure:
    """`tenure …` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code = run(list(arguments))
        out, err = self._capsys.readouterr()
        said = Said(code=code, out=out, err=err)
        said.assert_plain()
        return said


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's, with only these of Tenure's variables; they are without their prefix."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "NO_COLOR"))}
    return {**kept, "PYTHONPATH": str(ROOT), **{f"TENURE_{name}": value for name, value in settings.items()}}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tenure", *arguments]


@contextmanager
def ended(started: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """The process, which does not outlive the block."""
    with started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


def process(
    *arguments: str, folder: Path, stdin: str = "", variables: Mapping[str, str] | None = None, **settings: str
) -> Said:
    """`tenure …` as a process, to its end. ``folder`` is where it is run; ``variables`` have their whole names."""
    done = subprocess.run(
        command(*arguments),
        env={**environment(settings), **(variables or {})},
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    said = Said(code=done.returncode, out=done.stdout, err=done.stderr)
    said.assert_plain()
    return said
