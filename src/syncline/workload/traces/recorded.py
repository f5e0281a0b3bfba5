"""Recordings of a profiler as Workloads: what ran on each rank's device, and what waited for what.

    workload = recorded_workload([read_kineto("rank0.pt.trace.json.gz"), read_kineto("rank1.pt.trace.json.gz")])

Streams keep their order; an operation that started right when another stream's ended is taken to have waited for it. On
the CPU, where calls come one after the other, a collective waits for what its thread did before it asked for it, and
what a thread does next waits for it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from syncline.timeline.collective import operation_of
from syncline.timeline.recording.recording import Calling, Doing, Recording
from syncline.workload.graph import GraphBuilder, Op, Workload

#: An operation that starts within this time of another stream's end is taken to have waited for it.
CLOSE_S = 20e-6


def recorded_workload(recordings: Sequence[Recording], *, name: str = "profiler trace") -> Workload:
    """Return the workload of one or several recordings, a rank each."""
    builder = GraphBuilder(name, {"source": recordings[0].tool, "files": len(recordings)})
    for rank, one in enumerate(recordings):
        _RankOperations(builder, rank, one, one.world or len(recordings)).add()
    return builder.build()


class _RankOperations:
    """The operations of one rank under construction, by when they end."""

    def __init__(self, builder: GraphBuilder, rank: int, recording: Recording, world: int) -> None:
        self.builder, self.rank, self.recording, self.world = builder, rank, recording, world
        self.ended: list[tuple[float, int, int]] = []  # end, operation, stream; kept in order of end
        self.last_end: dict[int, float] = {}
        self.asked = self._asked()

    def add(self) -> None:
        """Add all of them, in order of start."""
        device = self.recording.device
        table = zip(device.doing.tolist(), device.start_s.tolist(), device.end_s.tolist(), device.stream.tolist(),
                    strict=True)  # fmt: skip
        for row, (doing, start, end, stream) in enumerate(table):
            if doing == Doing.COLLECTIVE:
                op = self._transfer(row, start, end, stream)
            else:
                kind = Op.COMPUTE if doing == Doing.COMPUTE else Op.MEMORY
                op = self.builder.add(self.rank, kind, self._name(row), stream=stream, duration_s=end - start,
                                      deps=self._waited_for(start, stream))  # fmt: skip
            self.last_end[stream] = end
            bisect.insort(self.ended, (end, op, stream))

    def _name(self, row: int) -> str:
        return self.recording.name_of(row)[:120]

    def _transfer(self, row: int, start: float, end: float, stream: int) -> int:
        call = self.recording.collectives[int(self.recording.device.collective[row])]
        peer = call.operation == "send-receive"
        kind = (Op.RECV if call.receives else Op.SEND) if peer else Op.COLLECTIVE
        word = "recv" if call.receives else "send" if peer else call.operation.replace("-", "_")
        deps = self._launched(call.operation, start) if self.asked else self._waited_for(start, stream)
        return self.builder.add(
            self.rank, kind, f"{word}: {self._name(row)}"[:120], stream=stream, size_bytes=call.size_bytes,
            axis="world", ranks=2 if peer else call.ranks or self.world, duration_s=end - start, deps=deps,
        )  # fmt: skip

    def _waited_for(self, start: float, stream: int) -> tuple[int, ...]:
        """Return another stream's operation whose end let this one start, if one ended just before.

        Of a thread of the CPU, all collectives that ended since it was last busy.
        """
        own_end = self.last_end.get(stream, float("-inf"))
        at, found = bisect.bisect_right(self.ended, (start, 1 << 60, 0)) - 1, []
        since = own_end if self.asked else max(start - CLOSE_S, own_end)
        while at >= 0 and self.ended[at][0] >= since:
            _, op, of = self.ended[at]
            if of != stream and not (self.asked and of in self.asked):
                found.append(op)
                if not self.asked:
                    break
            at -= 1
        return tuple(found)

    def _asked(self) -> dict[int, list[tuple[float, str]]]:
        """Return by thread of the CPU when it asked for which collective; empty for a device's recording."""
        if self.recording.device_name != "CPU":
            return {}
        host, names = self.recording.host, self.recording.names
        computing = np.unique(self.recording.device.stream[self.recording.device.doing == Doing.COMPUTE]).tolist()
        found: dict[int, list[tuple[float, str]]] = {thread: [] for thread in computing}
        for row in np.flatnonzero(host.calling == Calling.OPERATOR).tolist():
            called = names[int(host.name[row])]
            if called.startswith("c10d::") and (operation := operation_of(called)):
                found.setdefault(int(host.thread[row]), []).append((float(host.start_s[row]), operation))
        return found

    def _launched(self, operation: str, start: float) -> tuple[int, ...]:
        """Return what the thread that asked last for such a collective did last before."""
        asked = [(moment, thread) for thread, calls in self.asked.items() for moment, what in calls
                 if what == operation and moment <= start]  # fmt: skip
        if not asked:
            return ()
        moment, thread = max(asked)
        before = [op for end, op, of in self.ended if of == thread and end <= moment]
        return (before[-1],) if before else ()
