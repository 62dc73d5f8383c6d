"""``tenure verify-worker``: does a worker keep to the protocol?"""

import logging
import os
from dataclasses import asdict
from typing import Annotated

import typer

from tenure.cli.asking import JsonOption
from tenure.cli.output import out, plain, print_json
from tenure.conformance import Verdict, verify
from tenure.server import run


def verify_worker(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="starts the worker; put `--` before it")],
    only: Annotated[list[str] | None, typer.Option(help="only this scenario; may be repeated")] = None,
    lease_seconds: Annotated[float, typer.Option(min=1, max=600, help="length of the leases in the test")] = 3.0,
    patience_seconds: Annotated[
        float, typer.Option(min=1, max=600, help="how long the worker may take where no rule is stricter")
    ] = 15.0,
    json: JsonOption = False,
) -> int:
    """Put a worker, in any language, through the protocol, and print a verdict on each scenario. Exits 1 if one fails.

    COMMAND finds TENURE_URL, TENURE_QUEUE and TENURE_KIND in its environment, and does with each job of that kind what
    its payload says: docs/protocol.md tells. The service that it is tested against is started for the test and uses
    an embedded PostgreSQL, or a schema of its own in TENURE_DATABASE_URL.
    """
    logging.getLogger("tenure").setLevel(logging.CRITICAL)  # what a service has to say of being stopped is no news here

    async def verifying() -> int:
        report = await verify(
            command,
            environment=os.environ,
            only=only or (),
            lease_seconds=lease_seconds,
            patience_seconds=patience_seconds,
            on_verdict=(lambda _: None) if json else _show,
        )
        failed = sum(not verdict.passed for verdict in report.verdicts)
        if json:
            print_json({"passed": report.passed, "scenarios": [asdict(verdict) for verdict in report.verdicts]})
        elif failed:
            out.print(
                f"\n[red]{failed} of {len(report.verdicts)} scenarios failed[/red]; docs/protocol.md has the rules"
            )
        else:
            out.print(f"\n[green]all {len(report.verdicts)} scenarios passed[/green]")
        return 0 if report.passed else 1

    return run(verifying)


def _show(verdict: Verdict) -> None:
    mark = "[green]pass[/green]" if verdict.passed else "[red]FAIL[/red]"
    out.print(f"{mark}  {verdict.scenario:<13} [dim]{verdict.seconds:5.1f} s[/dim]  {plain(verdict.rule)}")
    if not verdict.passed:
        out.print(f"      {plain(verdict.detail)}")
        for line in verdict.output.splitlines()[-5:]:
            out.print(f"      [dim]│ {plain(line)}[/dim]")
