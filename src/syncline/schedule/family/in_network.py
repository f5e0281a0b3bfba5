"""In-network reduction: switches add up what comes from below and send the sum back down.

Cost law (n ranks, c chunks, L levels of switches): c + 2L - 1 rounds, and every rank sends the buffer once and gets it
once, however many ranks there are: half of what a ring sends. The tree of switches is data: `radix` children a switch.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.family.tree import tree_rounds
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.schedule import Schedule, alike

DEFAULT_CHUNKS = 8


def switch_tree(num_ranks: int, radix: int) -> tuple[Ints, Ints]:
    """Return parent (-1 at the top) and depth of ranks and then switches; each switch joins up to `radix` below it."""
    if radix < 2:
        raise ScheduleError(f"a reducing switch joins at least 2, not {radix}.")
    parent, first, width, level = np.full(num_ranks, -1, dtype=np.int64), 0, num_ranks, 0
    height = [np.zeros(num_ranks, dtype=np.int64)]
    while width > 1 or level == 0:
        above = -(-width // radix)
        parent[first:] = first + width + np.arange(width) // radix
        parent = np.concatenate([parent, np.full(above, -1, dtype=np.int64)])
        level += 1
        height.append(np.full(above, level, dtype=np.int64))
        first, width = first + width, above
    return parent, level - np.concatenate(height)


def in_network(num_ranks: int, *, radix: int = 32, channels: int = 1, chunks: int = 0) -> Schedule:
    """Return reduction in switches: every rank sends the buffer once; c + 2 levels - 1 rounds."""
    goal, num_chunks = Collective(Kind.ALL_REDUCE, num_ranks), chunks or DEFAULT_CHUNKS
    parent, depth = switch_tree(num_ranks, radix)
    switches = len(parent) - num_ranks
    rounds = tree_rounds(Kind.ALL_REDUCE, parent, depth, num_chunks)
    work = Kernel(f"{switches} reducing switches", goal, num_chunks, rounds, switches)
    return Schedule("in-network", goal, alike((whole(work),), num_chunks, channels), switches, family="in-network")
