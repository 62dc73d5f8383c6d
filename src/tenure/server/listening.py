"""The HTTP listener: where it listens, whom it lets in, and uvicorn without its signal handlers."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator

import uvicorn

from tenure.errors import ConfigurationError
from tenure.settings import Settings


class HttpServer(uvicorn.Server):
    """Uvicorn without its signal handlers: the service decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.set_inheritable(False)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with TENURE_HOST and TENURE_PORT"
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where the API is served."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_open_door(settings: Settings) -> None:
    """Nobody signs in yet, so other machines are let in only when the operator says that this is meant."""
    http = settings.http
    if http.insecure_no_auth or _is_loopback(http.host):
        return
    raise ConfigurationError(
        f"TENURE_HOST={http.host} lets other machines in, and nobody has to sign in: keep 127.0.0.1, put an "
        "authenticating proxy in front, or accept it with --insecure-no-auth"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
