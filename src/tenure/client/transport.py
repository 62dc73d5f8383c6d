"""Carries the steps of talks out over httpx: once for callers that block, once for those that await."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from tenure.client.rules import Rules
from tenure.client.steps import Failure, Found, Heard, More, Pause, Reply, Send, Step, Talk, Telling
from tenure.errors import ConfigurationError

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
_ANSWERED_IN_VAIN = (
    httpx.RemoteProtocolError,
    httpx.DecodingError,
    httpx.ReadError,
    httpx.WriteError,
    httpx.CloseError,
)
_OF_A_SOCKET = frozenset({"getpeername", "getsockname", "setsockopt"})
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_KEEP_ALIVE = [
    (level, getattr(socket, option), value)
    for level, option, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    )
    if hasattr(socket, option)
]
"""A waiting connection stays known to what lies between, and a peer that vanished is noticed."""


class SyncTransport:
    """Runs talks for a caller that blocks. One connection pool, which any thread may use."""

    def __init__(self, rules: Rules, headers: Mapping[str, str]) -> None:
        self.rules = rules
        # No proxy from the environment: the service is named, and mostly near.
        self._http = httpx.Client(
            base_url=_address(rules.url),
            headers=headers,
            transport=httpx.HTTPTransport(socket_options=_KEEP_ALIVE, verify=_is_https(rules.url)),
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def result(self, talk: Talk[T]) -> T:
        """What the talk comes to. Raises what it raises."""
        with contextlib.closing(_SyncCarrier(self._http, self.rules)) as carrier:
            heard: Heard = None
            while True:
                try:
                    step = talk.send(heard)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                heard = carrier.do(step)

    def items(self, talk: Telling[T]) -> Iterator[T]:
        """What the talk finds, as it finds it."""
        with contextlib.closing(_SyncCarrier(self._http, self.rules)) as carrier, contextlib.closing(talk):
            heard: Heard = None
            while True:
                try:
                    step = talk.send(heard)
                except StopIteration:
                    return
                if isinstance(step, Found):
                    heard = None
                    yield step.item
                else:
                    heard = carrier.do(step)


class _SyncCarrier:
    """The steps of one talk, and the stream that it has open."""

    def __init__(self, http: httpx.Client, rules: Rules) -> None:
        self._http = http
        self._rules = rules
        self._stream: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def do(self, step: Step) -> Heard:
        try:
            match step:
                case Send():
                    return self._send(step)
                case More():
                    return next(self._pieces, None)
                case Pause():
                    time.sleep(step.seconds)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure(error, self._rules)
        return None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _send(self, step: Send) -> Reply:
        self.close()
        answer = self._http.send(_request(self._http, step), stream=step.stream)
        if step.stream:
            self._stream, self._pieces = answer, answer.iter_bytes()
            if not answer.is_success:
                answer.read()
        return _reply(answer, step)


class AsyncTransport:
    """Runs talks for a caller that awaits. Cancelling a call closes its connection."""

    def __init__(self, rules: Rules, headers: Mapping[str, str]) -> None:
        self.rules = rules
        self._http = httpx.AsyncClient(
            base_url=_address(rules.url),
            headers=headers,
            transport=httpx.AsyncHTTPTransport(socket_options=_KEEP_ALIVE, verify=_is_https(rules.url)),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def result(self, talk: Talk[T]) -> T:
        """What the talk comes to. Raises what it raises."""
        async with contextlib.aclosing(_AsyncCarrier(self._http, self.rules)) as carrier:
            heard: Heard = None
            while True:
                try:
                    step = talk.send(heard)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                heard = await carrier.do(step)

    async def items(self, talk: Telling[T]) -> AsyncIterator[T]:
        """What the talk finds, as it finds it."""
        with contextlib.closing(talk):
            async with contextlib.aclosing(_AsyncCarrier(self._http, self.rules)) as carrier:
                heard: Heard = None
                while True:
                    try:
                        step = talk.send(heard)
                    except StopIteration:
                        return
                    if isinstance(step, Found):
                        heard = None
                        yield step.item
                    else:
                        heard = await carrier.do(step)


class _AsyncCarrier:
    """The steps of one talk, and the stream that it has open."""

    def __init__(self, http: httpx.AsyncClient, rules: Rules) -> None:
        self._http = http
        self._rules = rules
        self._stream: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def do(self, step: Step) -> Heard:
        try:
            match step:
                case Send():
                    return await self._send(step)
                case More():
                    assert self._pieces is not None
                    return await anext(self._pieces, None)
                case Pause():
                    await asyncio.sleep(step.seconds)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure(error, self._rules)
        except AttributeError as error:
            # On uvloop, a connection that breaks while it opens has no socket any more when anyio looks for it.
            if error.name not in _OF_A_SOCKET:
                raise
            return failure(httpx.ConnectError(str(error)), self._rules)
        return None

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
            self._stream = None

    async def _send(self, step: Send) -> Reply:
        await self.aclose()
        answer = await self._http.send(_request(self._http, step), stream=step.stream)
        if step.stream:
            self._stream, self._pieces = answer, answer.aiter_bytes()
            if not answer.is_success:
                await answer.aread()
        return _reply(answer, step)


def failure(error: httpx.RequestError, rules: Rules) -> Failure:
    """What went wrong on the way, for the rules and for a person."""
    sent = not isinstance(error, _NOT_SENT)
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Failure(words=f"{rules.url} cannot be asked: {error}", sent=False, passing=False)
    if isinstance(error, httpx.TimeoutException):
        what = "can be connected to" if not sent else "answers in time"
        return Failure(words=f"nobody at {rules.url} {what}", sent=sent)
    if isinstance(error, _ANSWERED_IN_VAIN):
        words = f"the connection to {rules.url} broke off, or it does not speak HTTP: {error or type(error).__name__}"
        return Failure(words=words, sent=sent)
    return Failure(
        words=f"nobody answers at {rules.url}: start a service with `tenure serve`, or name another with --url or TENURE_URL",
        sent=sent,
    )


def _address(url: str) -> str:
    """The address, if it can be one: what never can is not tried again and again."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for what is none
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL) as error:
        raise ConfigurationError(f"{url!r} is no address of a service: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            f"{url!r} is no address of a service: it must begin with http:// or https:// and a host"
        )
    return url


def _is_https(url: str) -> bool:
    """Reading the authorities' certificates takes longer than many a call: only where they are needed."""
    return urlsplit(url).scheme == "https"


def _request(http: "httpx.Client | httpx.AsyncClient", step: Send) -> httpx.Request:
    params: Any = list(step.params) or None
    return http.build_request(
        step.method,
        step.path,
        params=params,
        headers=dict(step.headers),
        content=step.content,
        timeout=httpx.Timeout(step.timeout_seconds, connect=min(_CONNECT_SECONDS, step.timeout_seconds)),
    )


def _reply(answer: httpx.Response, step: Send) -> Reply:
    body = b"" if step.stream and answer.is_success else answer.content
    return Reply(status=answer.status_code, headers={k.lower(): v for k, v in answer.headers.items()}, body=body)
