"""Both faces of the client, asked in one way: what the blocking one does, the awaiting one must do, too."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from tenure.client import AsyncClient, Client

FACES = ("blocking", "awaiting")


class _Awaited:
    """An AsyncClient on a loop of its own, whose methods block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> None:
        self._loop = loop
        self._client = client

    @property
    def url(self) -> str:
        return self._client.url

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def ask(*arguments: Any, **fields: Any) -> Any:
            asked = method(*arguments, **fields)
            return self._loop.run_until_complete(asked) if inspect.iscoroutine(asked) else self._each(asked)

        return ask

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(anext(items))
            except StopAsyncIteration:
                return


@contextmanager
def face(name: str, url: str, **options: Any) -> Iterator[Client]:
    """A client of the service, closed with the block."""
    if name == "blocking":
        with Client(url, **options) as client:
            yield client
        return
    loop = asyncio.new_event_loop()

    async def opened() -> AsyncClient:
        return await AsyncClient(url, **options).__aenter__()

    try:
        awaiting = loop.run_until_complete(opened())
        yield cast(Client, _Awaited(loop, awaiting))
        loop.run_until_complete(awaiting.close())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
