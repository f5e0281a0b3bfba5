"""In-network reduction: switches add up what comes from below and send the sum back down.

Cost law (n ranks, c chunks, L levels of switches): c + 2L - 1 rounds, and every rank sends the buffer once and gets it
once, however many ranks there are: half of what a ring sends. The tree of switches is data: `radix` children a switch.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.family.tree import tree_rounds
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.law import CostLaw
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


def in_network(
    num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, radix: int = 32, channels: int = 1, chunks: int = 0
) -> Schedule:
    """Return reduction in switches: every rank sends the buffer once; c + 2 levels - 1 rounds."""
    if kind is not Kind.ALL_REDUCE:
        raise ScheduleError(f"in-network reduction does not do {kind}.", hint="It does all_reduce.")
    goal, num_chunks = Collective(kind, num_ranks), chunks or DEFAULT_CHUNKS
    parent, depth = switch_tree(num_ranks, radix)
    switches = len(parent) - num_ranks
    rounds = tree_rounds(kind, parent, depth, num_chunks)
    work = Kernel(f"{switches} reducing switches", goal, num_chunks, rounds, switches)
    return Schedule("in-network", goal, alike((whole(work),), num_chunks, channels), switches, family="in-network")


def in_network_law(
    num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, radix: int = 32, chunks: int = 0, **_: object
) -> CostLaw:
    """Return what `in_network` promises: every link of the tree carries the buffer once each way."""
    levels, width, links = 0, num_ranks, 0
    while width > 1 or levels == 0:
        links, width, levels = links + width, -(-width // radix), levels + 1
    return CostLaw((chunks or DEFAULT_CHUNKS) + 2 * levels - 1, Fraction(1), Fraction(2 * links))
