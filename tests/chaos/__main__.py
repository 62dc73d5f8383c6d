"""``python -m tests.chaos``: a run of chaos, from a seed, with its report in Markdown."""

import argparse
import random
import sys
from pathlib import Path

import uvloop

from tests.chaos.plans import CI, mixed
from tests.chaos.report import report
from tests.chaos.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--plan", choices=("mixed", "ci"), default="mixed")
    parser.add_argument("--per-second", type=float, default=40.0)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--commands", action="store_true", help="start each process anew, imports and all")
    parser.add_argument("--keep", type=Path, default=None, help="folder for ledger and logs")
    parser.add_argument("--report", type=Path, default=None, help="file for the report")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    plan = (
        CI
        if given.plan == "ci"
        else mixed(given.minutes, per_second=given.per_second, jobs=given.jobs, zygote=not given.commands)
    )
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    outcome = uvloop.run(run(plan, seed, keep=given.keep))
    text = report(outcome)
    if given.report is not None:
        given.report.write_text(text)
    sys.stdout.write(f"{text}\nseed {seed}\n")
    return 1 if outcome.findings.found else 0


if __name__ == "__main__":
    sys.exit(main())
