"""Who sends how much to whom: by rank while that can be read, by host beyond."""

from __future__ import annotations

import numpy as np

from syncline.sim.flow.routing import Floats
from syncline.sim.flow.wired import WiredProgram

MAX_SIDE = 128


def traffic_matrix(wired: WiredProgram, size_bytes: float) -> tuple[Floats, list[str]]:
    """Return bytes from row to column and the names of the rows; hosts past the limit are grouped."""
    program = wired.program
    host = np.concatenate((program.placement.host, np.full(wired.num_vertices - program.num_ranks, -1))).astype(
        np.int64
    )
    by_rank = wired.num_vertices <= MAX_SIDE
    group = np.arange(wired.num_vertices) if by_rank else np.where(host < 0, host.max() + 1, host)
    wide = max(1, -(-(int(group.max()) + 1) // MAX_SIDE))
    group //= wide
    side = int(group.max()) + 1
    total = np.zeros((side, side))
    for i, lane in enumerate(wired.lanes):
        for j, phase in enumerate(lane.phases):
            size = wired.flow_bytes(i, j, size_bytes) * phase.repeat
            np.add.at(total, (group[phase.src], group[phase.dst]), size)
    word = "rank" if by_rank else "host"
    names = [f"{word} {k * wide}" if wide == 1 else f"{word}s {k * wide}-{(k + 1) * wide - 1}" for k in range(side)]
    return total, names
