"""What a rank did, as a Timeline: every message at this end, every packing, adding, encoding and decoding."""

from __future__ import annotations

import numpy as np

from syncline.runtime.execute.lane import Lane, Message
from syncline.runtime.execute.play import MessageTimes
from syncline.runtime.group import Group
from syncline.runtime.sync.coding import CodedMessage
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.timeline.spans import RULES, Spans
from syncline.version import __version__

IGNORES = ("when bytes leave or reach the NIC: a send ends when the transport has taken it",)
MAX_GATHERED = 1 << 20
"""Spans of all ranks together that are brought to every rank: 92 MB; of more each rank keeps its own."""
SHORTEST_WORK_S = 1e-6
"""Packing that took less was no packing: nothing had to be moved."""


def source() -> Source:
    """Return who says so."""
    return Source(SourceKind.RUNTIME, "syncline executor", __version__, IGNORES)


class LaneColumns:
    """The columns of a lane that do not change from run to run."""

    def __init__(self, lane: Lane, step: int) -> None:
        messages = [(m, entry.number, sent) for entry in lane.rounds
                    for sent, side in ((True, entry.sends), (False, entry.receives)) for m in side]  # fmt: skip
        self.rank, self.stream, self.step = lane.vertex, lane.strand, step
        self.peer = np.array([m.peer for m, _, _ in messages], np.int32)
        self.round = np.array([number for _, number, _ in messages], np.int32)
        self.kind = np.array([SpanKind.SEND if sent else SpanKind.RECV for _, _, sent in messages], np.uint8)
        self.work = np.array([_work_kind(m, sent) for m, _, sent in messages], np.uint8)
        self.size = np.array([m.wire.numel() * m.wire.element_size() for m, _, _ in messages], np.int64)
        self.plain = np.array([sum(r.data.numel() * r.data.element_size() for r in m.rows) for m, _, _ in messages],
                              np.int64)  # fmt: skip

    def add(self, builder: TimelineBuilder, log: MessageTimes, origin_s: float, name: str) -> None:
        """Append one run's spans."""
        if not len(self.peer):
            return
        begin, end, posted, done = (
            np.asarray(column) - origin_s for column in (log.work_begin, log.work_end, log.posted, log.done)
        )
        common = {"rank": self.rank, "stream": self.stream, "step": self.step, "name": name}
        builder.add_spans(
            **common, start_s=posted, end_s=done, kind=self.kind, round=self.round, size_bytes=self.size, peer=self.peer
        )
        rows = np.flatnonzero(end - begin >= SHORTEST_WORK_S)
        if len(rows):
            builder.add_spans(
                **common, start_s=begin[rows], end_s=end[rows], kind=self.work[rows], round=self.round[rows],
                size_bytes=self.plain[rows], peer=self.peer[rows],
            )  # fmt: skip


def _work_kind(message: Message, sent: bool) -> SpanKind:
    if isinstance(message, CodedMessage):
        return SpanKind.ENCODE if sent else SpanKind.DECODE
    return SpanKind.REDUCE if message.reduce and not sent else SpanKind.COPY


def agent_spans(timeline: Timeline, rank: int, name: str, size_bytes: int, origin_s: float) -> list[dict[str, object]]:
    """Return one run as an agent takes it: the collective of this rank, and what it sent to each peer."""
    spans = timeline.spans
    whole = {"rank": rank, "name": name, "start_s": origin_s + timeline.start_s, "end_s": origin_s + timeline.end_s}
    found = [{**whole, "kind": "collective", "size_bytes": size_bytes}]
    rows = np.flatnonzero((spans.kind == SpanKind.SEND) & (spans.rank == rank))
    for peer in np.unique(spans.peer[rows]).tolist():
        sent = int(spans.size_bytes[rows][spans.peer[rows] == peer].sum())
        found.append({**whole, "kind": "send", "size_bytes": sent, "peer": peer})
    return found


def gather(timeline: Timeline, group: Group) -> Timeline:
    """Return the spans of all ranks in one timeline, on every rank (this rank's alone where they would be too many)."""
    spans = timeline.spans
    mine = np.stack([spans.column(rule.name).astype(np.float64) for rule in RULES], axis=1)
    sizes = group.numbers([len(mine), float(timeline.metadata.get("late_s", 0.0))])
    counts = sizes[:, 0].astype(int)
    if counts.sum() > MAX_GATHERED:
        return timeline
    room = np.zeros((int(counts.max(initial=0)), len(RULES)))
    room[: len(mine)] = mine
    table = group.numbers(room.ravel()).reshape(group.size, *room.shape)
    rows = np.concatenate([part[:count] for part, count in zip(table, counts, strict=True)])
    columns = {rule.name: rows[:, i].astype(rule.dtype) for i, rule in enumerate(RULES)}
    metadata = {**timeline.metadata, "late_s": float(sizes[:, 1].max())}
    return Timeline(timeline.source, Spans(**columns), timeline.names, metadata=metadata)
