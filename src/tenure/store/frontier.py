"""Where a claimer's last claims ended, so that the next one need not pass again over what was claimed since.

A claimed job's index entry is dead, but stays as long as anybody holds a snapshot from before (a backup, a report, a
forgotten transaction), and every scan from the front passes over all of them: after 200,000 jobs that is most of a claim's
time. So a claimer begins where its last claim of the lane ended.

Behind that frontier something may still appear: a transaction that commits late, a row that was locked when the claim
passed by, the database's clock set back. So nothing rests on it: while there is more to claim than asked for, every
`_WHOLE_SECONDS` a claim looks at everything; when there is less, each does, at once. Only where looking at everything has
become dear does a claim first look from the frontier, and everything is then looked at within `_WHOLE_SECONDS`, too.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenure.jobs.model import Claimed

_WHOLE_SECONDS = 1.0
_DEAR_SECONDS = 0.005
"""A look at everything that brings next to nothing takes under 1 ms; ten times that means that something lies dead."""
_SHARE = 20
"""Dear looks take at most one part in twenty of a claimer's time, until `_WHOLE_SECONDS` are over."""
_MAX_LANES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One (queue, kind, priority), and the last position in it that was claimed: (available_at, id)."""

    queue: str
    kind: str
    priority: int
    from_at: datetime
    from_id: UUID


Look = Callable[[Sequence[Lane], int], Awaitable[list[Claimed]]]
"""Claims up to so many jobs, in these lanes from there on, in all others from their beginning."""


class Frontier:
    """One claimer's memory, for one tenant and part. Not for concurrent claims: the claimer makes one after the other."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: OrderedDict[tuple[str, str, int], Lane] = OrderedDict()
        self._more = False
        """Whether the last claim brought all that it asked for: then there may be more."""
        self._dear = False
        self._whole_due_at = 0.0
        self._whole_allowed_at = 0.0

    async def claim(self, look: Look, limit: int) -> list[Claimed]:
        """Claims up to ``limit`` jobs by one look, or two."""
        claimed: list[Claimed] = []
        remembers = bool(self._lanes) and (self._more or self._dear) and self._clock() < self._whole_due_at
        if remembers:
            claimed = await look(list(self._lanes.values()), limit)
            self._advance(claimed)
        if len(claimed) < limit and (not remembers or self._clock() >= self._whole_allowed_at):
            claimed += await self._look_at_all(look, limit - len(claimed))
        self._more = len(claimed) == limit
        return claimed

    async def _look_at_all(self, look: Look, limit: int) -> list[Claimed]:
        began = self._clock()
        claimed = await look((), limit)
        ended = self._clock()
        self._advance(claimed)
        seconds = ended - began
        self._dear = seconds > _DEAR_SECONDS * (1 + len(claimed) / 10)
        self._whole_due_at = ended + _WHOLE_SECONDS
        self._whole_allowed_at = ended + (min(_SHARE * seconds, _WHOLE_SECONDS) if self._dear else 0.0)
        return claimed

    def _advance(self, claimed: Sequence[Claimed]) -> None:
        for job in (item.job for item in claimed):
            key = (job.queue, job.kind, job.priority)
            lane = self._lanes.get(key)
            if lane is None or (lane.from_at, lane.from_id) < (job.available_at, job.id):
                self._lanes[key] = Lane(
                    queue=job.queue, kind=job.kind, priority=job.priority, from_at=job.available_at, from_id=job.id
                )
                self._lanes.move_to_end(key)
        while len(self._lanes) > _MAX_LANES:
            self._lanes.popitem(last=False)
