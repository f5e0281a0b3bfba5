"""CUBIC against its RFC: in its Reno-friendly region the mean window is sqrt(3 / (2 p)) packets."""

from __future__ import annotations

import numpy as np
from dumbbell import Dumbbell
from figure import Figure, Point

from syncline.sim.packet import PacketOptions, Watching, messages, simulate


def figures() -> list[Figure]:
    points = []
    shape = Dumbbell(1, access_Bps=50e9, trunk_Bps=50e9, latency_s=20e-6)
    network = shape.network()
    for loss in (1e-3, 3e-4, 1e-4):
        # Three links destroy packets, on the way there only: acknowledgements are cumulative.
        options = PacketOptions("cubic", loss=loss / 3, payload_bytes=1434, seed=4)
        load = messages([shape.sender(0)], [shape.receiver(0)], 4e9)
        outcome = simulate(network, [load], options, watching=Watching(20e-6, flows=(0,)), until_s=0.4)
        assert outcome.sampled is not None
        window = outcome.sampled.flow_window_bytes[2000:, 0] / 1434
        points.append(Point(f"loss {loss:g}", float(np.sqrt(1.5 / loss)), float(window.mean())))
    source = "RFC 8312, Eq. 3, which RFC 9438 keeps: AVG_W = sqrt(3 / (2 p)) where CUBIC follows Reno"
    read = "RFC 8312, 4.2 and table 2 (38 at 0.001, 120 at 0.0001), 2026-11-16"
    return [Figure("CUBIC: mean window by loss", source, "packets", tuple(points), read=read)]
