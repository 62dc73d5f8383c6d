"""One request and its answer: problem documents become the server's own error classes, trouble on the way one error."""

from collections.abc import Mapping
from typing import Any

import httpx

from tenure import errors
from tenure.errors import (
    ConfigurationError,
    FieldError,
    InvalidInput,
    LeaseLost,
    MethodNotAllowed,
    Overloaded,
    TenureError,
    Unavailable,
    VersionMismatch,
)

_BY_CODE: dict[str, type[TenureError]] = {
    value.code: value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TenureError)
}

TIMEOUT_SECONDS = 10.0
WAIT_MARGIN_SECONDS = 10.0
"""A request that asks the server to wait must itself wait longer."""


class ServiceUnreachable(Exception):
    """Nobody answers at this address, or what answers is not Tenure."""


def error_of(answer: httpx.Response) -> TenureError:
    """The error that a problem document tells of."""
    try:
        problem = answer.json()
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError):
        raise not_tenure(answer) from None
    kind = _BY_CODE.get(code, TenureError)
    known = {"type", "title", "status", "detail", "instance", "code", "request_id", "errors"}
    extensions = {name: value for name, value in problem.items() if name not in known}
    if issubclass(kind, InvalidInput):
        found = [FieldError(pointer=item["pointer"], message=item["message"]) for item in problem.get("errors", [])]
        return kind(detail, errors=found)
    if issubclass(kind, LeaseLost):
        return kind(
            detail, reason=extensions.get("reason", "unknown"), current_attempt=extensions.get("current_attempt")
        )
    if issubclass(kind, VersionMismatch):
        return kind(detail, current_version=extensions.get("current_version", 0))
    if issubclass(kind, Unavailable | Overloaded):
        return kind(detail, retry_after_seconds=_seconds(answer.headers.get("Retry-After", "")))
    if issubclass(kind, MethodNotAllowed):
        return kind(detail, allow=answer.headers.get("Allow", ""))
    return kind(detail, **extensions)


def not_tenure(answer: httpx.Response) -> ServiceUnreachable:
    """Somebody answers, but not as Tenure does."""
    return ServiceUnreachable(
        f"{_address(answer.request.url)} answered {answer.status_code} in a form that is not Tenure's: "
        "is --url or TENURE_URL right?"
    )


class Transport:
    """A kept connection to one service."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self._timeout_seconds = timeout_seconds
        # No proxy from the environment: the service is named, and mostly on this machine.
        try:
            self._http = httpx.Client(base_url=url, timeout=timeout_seconds, trust_env=False)
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{url!r} is no address of a service: {error}") from error

    def close(self) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
    ) -> dict[str, Any]:
        """The answer, if it is no problem. Raises the server's error, or ServiceUnreachable."""
        timeout = self._timeout_seconds if not wait_seconds else wait_seconds + WAIT_MARGIN_SECONDS
        sent_headers = {**(headers or {}), **({"Prefer": f"wait={round(wait_seconds)}"} if wait_seconds else {})}
        try:
            answer = self._http.request(
                method, path, json=json, params=_without_none(params), headers=sent_headers, timeout=timeout
            )
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self.unreachable(error, waited_seconds=timeout) from error
        if not answer.is_success:
            raise error_of(answer)
        try:
            value = answer.json()
        except ValueError:
            raise not_tenure(answer) from None
        if not isinstance(value, dict):
            raise not_tenure(answer)
        return value

    def stream(self, path: str, *, headers: Mapping[str, str], read_timeout_seconds: float) -> Any:
        """A context manager over a streamed answer."""
        timeout = httpx.Timeout(self._timeout_seconds, read=read_timeout_seconds)
        return self._http.stream("GET", path, headers=dict(headers), timeout=timeout)

    def unreachable(self, error: httpx.RequestError, *, waited_seconds: float) -> ServiceUnreachable:
        """What went wrong on the way, for a person."""
        if isinstance(error, httpx.TimeoutException):
            return ServiceUnreachable(f"{self.url} did not answer within {waited_seconds:g} s")
        if isinstance(error, httpx.RemoteProtocolError | httpx.DecodingError | httpx.ReadError | httpx.WriteError):
            return ServiceUnreachable(f"the connection to {self.url} broke off, or it does not speak HTTP: {error}")
        return ServiceUnreachable(
            f"nobody answers at {self.url}: start a service with `tenure serve`, or name another with --url or TENURE_URL"
        )


def _address(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _seconds(text: str) -> float:
    """A proxy's ``Retry-After`` may be a date: then soon is as good a guess as any."""
    return float(text) if text.isascii() and text.isdigit() else 1.0


def _without_none(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None and value != []}
