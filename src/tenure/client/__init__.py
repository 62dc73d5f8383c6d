"""Tenure over HTTP, for programs: the command line and remote workers use it, and so can yours."""

from tenure.client.async_client import AsyncClient
from tenure.client.client import Client
from tenure.client.rules import ServiceUnreachable

__all__ = ["AsyncClient", "Client", "ServiceUnreachable"]
