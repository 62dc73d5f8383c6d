"""A service that answers as it is told, one answer a request, and notes what it was asked."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Told:
    """``answers`` are given in order, the last one again and again; an empty one cuts the connection."""

    answers: Sequence[bytes]
    url: str = ""
    asked: list[bytes] = field(default_factory=list)

    def next_answer(self) -> bytes:
        return self.answers[min(len(self.asked), len(self.answers)) - 1]

    @property
    def headers(self) -> list[dict[str, str]]:
        """Of each request, by name in lower case."""
        found = []
        for request in self.asked:
            _, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            found.append({name.lower(): value for name, _, value in (line.partition(": ") for line in lines)})
        return found


@contextmanager
def telling(*answers: bytes) -> Iterator[Told]:
    """Serves on loopback while the block runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    told = Told(answers=answers, url=f"http://127.0.0.1:{listener.getsockname()[1]}")

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                request = _read(caller)
                if request:
                    told.asked.append(request)
                    caller.sendall(told.next_answer())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)


def _read(caller: socket.socket) -> bytes:
    """One request, whole: a connection that is closed with bytes unread is reset, and the answer with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = caller.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += caller.recv(65_536)
    return head + b"\r\n\r\n" + body
