"""Puts a worker, in whatever language, through what the protocol asks of it. docs/protocol.md tells what that is.

`kit.verify` starts a service; each scenario has a queue, a proxy that can spoil things and a process of the worker to
itself, and ends in a verdict.
"""

from tenure.conformance.kit import Report, Verdict, verify
from tenure.conformance.scenarios import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Report", "Scenario", "Verdict", "verify"]
