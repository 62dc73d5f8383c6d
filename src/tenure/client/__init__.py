"""Tenure over HTTP, for programs: the command line uses it, and so can yours."""

from tenure.client.client import Client
from tenure.client.transport import ServiceUnreachable

__all__ = ["Client", "ServiceUnreachable"]
