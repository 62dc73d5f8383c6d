"""`tenure demo` as whoever tries Tenure first sees it: a real process, to its end, on data of its own."""

import csv
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest

from tests.cli.commands import ESCAPE, Said, process

ROWS = 5_000
STEPS = (
    "PostgreSQL runs",
    "5,000 sample orders are loaded",
    "The service answers at http://127.0.0.1:",
    "1. Export a report",
    "orders as csv: succeeded",
    "orders as parquet: succeeded",
    "2. A job dies, an operator retries it",
    "a job that fails: dead",
    "the same job, retried: succeeded",
    "manual_retry",
    "3. Cancel a running job",
    "receipt: requested, running",
    "receipt: stopped, canceled",
    "All as promised",
    "Everything is stopped again.",
)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that the embedded server's account can enter, also when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def demo(data_dir: Path, *options: str) -> Said:
    return process("demo", "--rows", str(ROWS), *options, folder=data_dir, DATA_DIR=str(data_dir))


def those_that_run_on(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder."""
    found = []
    for one in psutil.process_iter():
        try:
            line = " ".join(one.cmdline())
        except psutil.Error:
            continue
        if str(folder) in line and one.pid != os.getpid():
            found.append(line)
    return found


def test_it_shows_what_it_promises_twice_and_leaves_nothing_running(data_dir: Path) -> None:
    for _ in range(2):
        said = demo(data_dir)
        assert said.code == 0, said.out + said.err
        assert ESCAPE not in said.out + said.err
        place = 0
        for step in STEPS:
            found = said.out.find(step, place)
            assert found >= 0, f"{step!r} is missing, or out of order:\n{said.out}"
            place = found
        assert those_that_run_on(data_dir) == []
    assert_artifacts(data_dir / "demo")


def test_it_can_leave_nothing_lying_about_and_ignores_other_settings(data_dir: Path) -> None:
    said = process(
        "demo", "--rows", "1000", "--clean", folder=data_dir,
        DATA_DIR=str(data_dir / "mine"), DATABASE_URL="postgresql://nobody@127.0.0.1:1/none", PORT="1",
    )  # fmt: skip
    assert said.code == 0, said.out + said.err
    assert not (data_dir / "mine" / "demo").exists()
    assert those_that_run_on(data_dir) == []


def assert_artifacts(folder: Path) -> None:
    """The fetched files hold every order, the same in both forms."""
    with (folder / "orders.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    table = pyarrow.parquet.read_table(folder / "orders.parquet")
    assert [int(row["id"]) for row in rows] == list(range(1, ROWS + 1))
    assert table.column("id").to_pylist() == list(range(1, ROWS + 1))
    assert [row["amount"] for row in rows] == [str(amount) for amount in table.column("amount").to_pylist()]
    assert [row["customer"] for row in rows] == table.column("customer").to_pylist()
