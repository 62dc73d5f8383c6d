"""A process under a supervisor: the line by which it says that it is ready, and hears when to stop.

Orders come by this line, not by signals: what also sends signals to every process (a terminal, systemd) would make two of
one order, and the second means "at once". When the line breaks, the supervisor is gone, and nobody would start the process
again or tell it to stop: it stops in order.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

READY, DRAIN, HURRY = b"r", b"d", b"h"


class ParentLine:
    """A child's end of the line."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def tell_ready(self) -> None:
        """Tells the supervisor that this process does its work now."""
        with contextlib.suppress(OSError):
            self._socket.send(READY)

    @contextlib.contextmanager
    def heard(self, *, drain: Callable[[], object], hurry: Callable[[], object]) -> Iterator[None]:
        """Calls ``drain`` when the process is to stop in order, or is left alone; ``hurry`` when it is to end at once."""
        loop = asyncio.get_running_loop()
        descriptor = self._socket.fileno()

        def on_orders() -> None:
            try:
                orders = self._socket.recv(64)
            except BlockingIOError:
                return
            except OSError:
                orders = b""
            if not orders:
                loop.remove_reader(descriptor)
                drain()
            for order in orders:
                if order == DRAIN[0]:
                    drain()
                elif order == HURRY[0]:
                    hurry()

        loop.add_reader(descriptor, on_orders)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
