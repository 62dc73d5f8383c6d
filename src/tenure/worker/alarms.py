"""Calls at given times, many of which are called off before: timeouts and deadlines of attempts.

An event loop's own timer costs more than a short handler does. Here one timer stands for the earliest call of all; a call
that is called off stays in the heap until its time, or until such calls are most of it.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

_FEW = 1_000
"""So many that were called off are not worth a look."""


class Alarm:
    """One call to come. Call it off when it is not wanted any more."""

    __slots__ = ("_alarms", "_call")

    def __init__(self, alarms: "Alarms", call: Callable[[], None]) -> None:
        self._alarms = alarms
        self._call: Callable[[], None] | None = call

    @property
    def off(self) -> bool:
        """Whether nothing will be called any more."""
        return self._call is None

    def call_off(self) -> None:
        """Calls it off; harmless when it was called, or called off, before."""
        if self._call is not None:
            self._call = None
            self._alarms.called_off()

    def ring(self) -> None:
        """Calls, once."""
        call, self._call = self._call, None
        if call is not None:
            call()


class Alarms:
    """The calls to come on the running event loop. Not for other threads."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = itertools.count()
        self._off = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """Calls in memory, with those that were called off."""
        return len(self._heap)

    def set(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Calls ``call`` in so many seconds."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        alarm = Alarm(self, call)
        heapq.heappush(self._heap, (at, next(self._numbers), alarm))
        if self._timer is None or at < self._timer_at:
            self._start_timer(loop)
        return alarm

    def called_off(self) -> None:
        """For alarms: one of those in memory is off."""
        self._off += 1
        if self._off > _FEW and self._off * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].off]
            heapq.heapify(self._heap)
            self._off = 0

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._heap[0][0]
        self._timer = loop.call_at(self._timer_at, self._ring_due)

    def _ring_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        try:
            while self._heap and self._heap[0][0] <= loop.time():
                alarm = heapq.heappop(self._heap)[2]
                if alarm.off:
                    self._off = max(self._off - 1, 0)
                alarm.ring()
        finally:
            if self._heap:
                self._start_timer(loop)
