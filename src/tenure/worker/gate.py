"""How many ask a service that does not answer."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator

from tenure.client import ServiceUnreachable
from tenure.errors import BodyTooLarge, InvalidInput, Malformed, TenureError, Unavailable

_GATE_SECONDS = (0.1, 1.0)
_OF_THE_CONTENTS = (InvalidInput, Malformed, BodyTooLarge)
"""Refusals of a whole request that are about what is in it: in smaller ones, the odd one is found."""


class Gate:
    """Lets all pass while the service answers, and about one a second try whether it does again.

    Shared by the worker's event loop and that of the heartbeats.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._wait_seconds = 0.0
        self._closed_until = 0.0

    @contextlib.asynccontextmanager
    async def passing(self, seconds: float) -> AsyncIterator[None]:
        """Around one request: it may take so long, and how it ends opens or closes the gate.

        Raises Unavailable when the request may succeed another time, also for refusals that are not about its contents:
        they come from what stands between, or from a service that is not itself.
        """
        self._enter()
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            self._close()
            raise ServiceUnreachable(f"{self._url} did not answer within {seconds:g} s") from error
        except ServiceUnreachable:
            self._close()
            raise
        except (*_OF_THE_CONTENTS, Unavailable):
            self._wait_seconds = 0.0
            raise
        except TenureError as error:
            self._close()
            raise ServiceUnreachable(f"{error.title}: {error.detail}") from error
        else:
            self._wait_seconds = 0.0

    def _enter(self) -> None:
        """Raises ServiceUnreachable, without asking, while somebody else tries or just failed."""
        with self._lock:
            if not self._wait_seconds:
                return
            left = self._closed_until - time.monotonic()
            if left > 0:
                raise ServiceUnreachable(f"{self._url} did not answer; trying again", retry_after_seconds=left)
            self._closed_until = time.monotonic() + self._jittered()

    def _close(self) -> None:
        first, longest = _GATE_SECONDS
        with self._lock:
            self._wait_seconds = min(max(self._wait_seconds * 2, first), longest)
            self._closed_until = time.monotonic() + self._jittered()

    def _jittered(self) -> float:
        return self._wait_seconds * (0.75 + 0.5 * random.random())  # noqa: S311 - spreads load, hides nothing
