"""Which link made a collective slow: its own messages are measurements, so the tournament's attribution reads them.

A message moves from the moment both ends have posted it until its receiver has it. Every message of the last repetition
is one flow; what is expected of it is its slowest link, shared with the messages its ends send and receive in the same
round. Ranks must share a clock, or the two ends of a message cannot be compared.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from syncline.bench.attribute import Suspect, attribute
from syncline.bench.incidence import Crossings
from syncline.bench.pairing import Match
from syncline.errors import BenchError
from syncline.program import Placement
from syncline.timeline import SpanKind, Timeline

LEAST_BYTES = 16 << 10
"""Smaller messages are latency and host work; their rate says nothing about a link."""


def suspects(timeline: Timeline, placement: Placement) -> tuple[Suspect, ...]:
    """Return the parts that explain slow messages of one run, the worst first; nothing where they cannot be told."""
    if not timeline.metadata.get("same_clock") or timeline.metadata.get("helpers") == "seated with ranks":
        return ()
    rows = _messages(timeline, placement)
    if len(rows) < 4:
        return ()
    matches = [row[0] for row in rows]
    crossings = Crossings(placement.fabric, placement.device.tolist())
    try:
        incidence = crossings.incidence(matches)
    except BenchError:
        return ()  # all on one host
    out, coming = Counter((m.src, r) for m, r, _ in rows), Counter((m.dst, r) for m, r, _ in rows)
    shared = np.array([max(out[m.src, r], coming[m.dst, r]) for m, r, _ in rows])
    expected = crossings.line_Bps(matches) / shared
    return attribute(np.array([row[2] for row in rows]), expected, incidence).suspects


def _messages(timeline: Timeline, placement: Placement) -> list[tuple[Match, tuple[int, int, int], float]]:
    """Return (ends, round, rate) of every message between hosts that is large enough."""
    spans = timeline.spans
    key = ("rank", "peer", "step", "stream", "round")
    columns = [spans.column(name).tolist() for name in key]
    posted = {}
    for i in np.flatnonzero(spans.kind == SpanKind.SEND).tolist():
        rank, peer, *where = (column[i] for column in columns)
        posted[rank, peer, tuple(where)] = float(spans.start_s[i])
    host = placement.host
    found = []
    for i in np.flatnonzero((spans.kind == SpanKind.RECV) & (spans.size_bytes >= LEAST_BYTES)).tolist():
        rank, peer, *where = (column[i] for column in columns)
        sent = posted.get((peer, rank, tuple(where)))
        if sent is None or max(rank, peer) >= len(host) or host[rank] == host[peer]:
            continue
        took = float(spans.end_s[i]) - max(sent, float(spans.start_s[i]))
        step, stream, number = where
        found.append((Match(peer, rank), (step, stream, number), float(spans.size_bytes[i]) / max(took, 1e-9)))
    return found
