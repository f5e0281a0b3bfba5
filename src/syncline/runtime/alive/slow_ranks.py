"""Ranks that hold the others up in every step: named once they have done so for a while, and passed on to others."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from syncline.runtime.alive.heartbeat import Beat
from syncline.runtime.alive.verdict import Member, Straggler, stragglers

SLOW_LOOKS = 3
"""Looks, `watch_s` apart, at which a rank must hold the others up before it is called slow."""
MAX_SLOW = 3
"""Slow ranks that a beat tells of."""

log = logging.getLogger("syncline.watchdog")


class SlowRanks:
    """What one rank has seen of slow ranks, and what it has heard of them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._looks: dict[int, int] = {}
        self._now: list[Straggler] = []
        self._told: dict[int, tuple[float, Straggler]] = {}
        """Ranks that others call slow, and when that was last heard."""

    def look(self, beats: Mapping[int, Beat]) -> None:
        """Name a rank that holds the others up, once, when it has done so for a while."""
        self._now = stragglers(beats, self._members)
        self._looks = {one.rank: self._looks.get(one.rank, 0) + 1 for one in self._now}
        for one in self._now:
            if self._looks[one.rank] == SLOW_LOOKS:
                log.warning("%s", one.line())

    def hear(self, beat: Beat, now_s: float) -> None:
        """Take what another rank says of slow ones."""
        for rank, reason, late_s, step_s in beat.slow:
            who = self._members[rank]
            self._told[rank] = now_s, Straggler(who.rank, who.host, reason, late_s, step_s)

    def found(self, beats: Mapping[int, Beat], since_s: float) -> list[Straggler]:
        """Return who is slow, the worst first: as seen here, or as heard since then."""
        told = {one.rank: one for heard_s, one in self._told.values() if heard_s > since_s}
        own = {one.rank: one for one in stragglers(beats, self._members)}
        return sorted({**told, **own}.values(), key=lambda straggler: -straggler.late_s)

    def news(self, since_s: float) -> tuple[tuple[int, str, float, float], ...]:
        """Return whom this rank has seen to be slow for long enough, and whom it has heard of since then."""
        places = {member.rank: place for place, member in enumerate(self._members)}
        seen = [one for one in self._now if self._looks.get(one.rank, 0) >= SLOW_LOOKS]
        told = [one for heard_s, one in self._told.values() if heard_s > since_s]
        rows = {places[one.rank]: one for one in (*told, *seen)}
        return tuple((rank, one.reason, one.late_s, one.step_s) for rank, one in list(rows.items())[:MAX_SLOW])
