"""A line to a service that can be cut: a TCP proxy on loopback, in threads, for clients that block."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class Line:
    """Carries bytes both ways.

    ``lose_answers`` of that many connections: the service has answered, the caller never hears it. ``cut_after`` bytes
    from the service, once: the connection breaks right there.
    """

    def __init__(self, url: str, *, lose_answers: int = 0, cut_after: int | None = None) -> None:
        parts = urlsplit(url)
        self._there = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.lose_answers = lose_answers
        self.cut_after = cut_after
        self.lost: list[bytes] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        self._spawn(self._accept)

    def stop(self) -> None:
        for end in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def _spawn(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            service = socket.create_connection(self._there)
            self._open |= {caller, service}
            self._spawn(self._forth, caller, service)
            self._spawn(self._back, service, caller)

    def _forth(self, caller: socket.socket, service: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := caller.recv(65_536):
                service.sendall(data)
        _end(service)

    def _back(self, service: socket.socket, caller: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := service.recv(65_536):
                if self.lose_answers:
                    self.lose_answers -= 1
                    self.lost.append(data)
                    break
                if self.cut_after is not None:
                    if len(data) >= self.cut_after:
                        caller.sendall(data[: self.cut_after])
                        self.cut_after = None
                        break
                    self.cut_after -= len(data)
                caller.sendall(data)
        _end(caller)
        _end(service)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def line_to(url: str, *, lose_answers: int = 0, cut_after: int | None = None) -> Iterator[Line]:
    """A line that carries while the block runs."""
    line = Line(url, lose_answers=lose_answers, cut_after=cut_after)
    line.start()
    try:
        yield line
    finally:
        line.stop()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Somebody who gives every caller this answer; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                caller.recv(65_536)
                caller.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)


def http(status: str, content_type: str, body: bytes, *headers: str) -> bytes:
    """One answer as it stands on the wire."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
