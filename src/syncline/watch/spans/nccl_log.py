"""Where each rank of an NCCL job is, from NCCL's log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL, NCCL_DEBUG_FILE).

A line tells that a rank called a collective, not that it ended: no times come from here. When the files stand still and
ranks of one communicator are at different calls, those behind hold up the rest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from syncline.watch.clock import Clock
from syncline.watch.foreign import MAX_RANK
from syncline.watch.hang import Pending
from syncline.watch.spans.event import PendingEvent, SpanSource, StuckEvent
from syncline.watch.spans.tail import Tail

QUIET_S = 30.0
"""So long nothing must have been written of a communicator before its ranks are compared."""
MAX_COMMS = 20_000
_TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of NCCL's data types, by their number."""
_INIT = re.compile(
    rb"(\S+?:\d+):\d+ \[\d+\] .*\bcomm (0x[0-9a-f]+) rank (\d{1,7}) n[rR]anks (\d{1,7})(.*)Init COMPLETE"
)
_ID = re.compile(rb"commId (0x[0-9a-f]+)")
_CALL = re.compile(
    rb"(\S+?:\d+):\d+ \[\d+\] .*NCCL INFO (\w+): opCount ([0-9a-f]{1,15}) .*?count (\d{1,15}) datatype (\d{1,2})"
    rb" .*?comm (0x[0-9a-f]+) \[nranks=(\d{1,7})\](?:.*globalrank (\d{1,7}))?"
)
_WHOLE = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "AllToAll", "Gather", "Scatter"})
"""Calls whose count is one rank's part: their largest buffer holds all of them."""


@dataclass
class _Comm:
    rank: int
    num_ranks: int
    group: str


class NcclLogSpans(SpanSource):
    """Follows the files of a folder (every rank writes its own)."""

    name = "nccl-log"

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self._clock, self._tail = clock, Tail(folder, ("",))
        self._comms: dict[tuple[bytes, bytes], _Comm] = {}
        self._world: dict[bytes, tuple[int, int]] = {}
        self._last: dict[str, dict[int, PendingEvent]] = {}
        self._moved_s: dict[str, float] = {}

    def read(self) -> list[StuckEvent]:
        """Return who holds up the others now; nobody while calls come in."""
        now_s, is_new = self._clock.now().mono_s, False
        for _, line in self._tail.new_lines():
            is_new = True
            if b"opCount" in line:
                self._take_call(line, now_s)
            elif b"Init COMPLETE" in line:
                self._take_comm(line)
        stuck = Pending()
        for group, calls in self._last.items():
            apart = len({call.number for call in calls.values()}) > 1
            if apart and now_s - self._moved_s[group] >= QUIET_S:
                stuck.take(calls.values())
        hangs = stuck.hangs(())
        return [StuckEvent(self.name, hangs)] if hangs or is_new else []

    def _take_comm(self, line: bytes) -> None:
        found = _INIT.search(line)
        if found is None or int(found[3]) >= MAX_RANK or len(self._comms) >= MAX_COMMS:
            return
        process, comm, rank, num = found[1], found[2], int(found[3]), int(found[4])
        known = _ID.search(found[5])
        group = known[1].decode() if known else f"communicator of {num} ranks"
        self._comms[process, comm] = _Comm(rank, num, group)
        if num > self._world.get(process, (0, 0))[1]:
            self._world[process] = (rank, num)

    def _take_call(self, line: bytes, now_s: float) -> None:
        found = _CALL.search(line)
        if found is None:
            self.num_bad += 1
            return
        comm = self._comms.get((found[1], found[6]))
        world = self._world.get(found[1])
        if found[8] is None and world is None:
            return  # its beginning was written before the log was
        rank = int(found[8]) if found[8] is not None else (world or (0, 0))[0]
        group = comm.group if comm is not None else f"communicator of {int(found[7])} ranks"
        name, count, kind, num = found[2].decode(), int(found[4]), int(found[5]), int(found[7])
        size = count * (_TYPE_BYTES[kind] if kind < len(_TYPE_BYTES) else 1) * (num if name in _WHOLE else 1)
        call = PendingEvent(rank, name, group, int(found[3], 16), min(size, 1 << 62), True)
        self._last.setdefault(group, {})[rank] = call
        self._moved_s[group] = now_s
