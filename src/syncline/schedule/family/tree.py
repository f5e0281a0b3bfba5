"""Trees: data climbs to a root and comes down again, chunk behind chunk.

Cost laws (n ranks, c chunks, depth D = floor(log2 n) for the binary tree, ceil(log2 n) for each of the double tree):
- all-reduce: c + 2D - 1 rounds; everyone sends up once and once to each child: at most 3 times the buffer in one
  tree, at most 2 in the double tree, whose inner ranks are leaves of the other half's tree;
- broadcast, reduce: c + D - 1 rounds; an inner rank sends a broadcast twice, any rank a reduction once.
Few rounds, so trees win where latency rules.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.kernel import Kernel, Stage, whole
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import Schedule, Strand

KINDS = (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE)
DEFAULT_CHUNKS = 8


def tree_rounds(kind: Kind, parent: Ints, depth: Ints, num_chunks: int) -> tuple[Round, ...]:
    """Return the pipelined rounds of any tree: `parent` is -1 at the root, and every depth one more than its parent's.

    A vertex at depth d of D sends chunk k up in round k + D - d, and gets it from above in round k + D + d - 1
    (all-reduce) or k + d - 1 (broadcast).
    """
    child = np.flatnonzero(parent >= 0)
    if not len(child):
        return ()
    deepest = int(depth.max())
    above, at = parent[child], depth[child]
    climb, fall = at - deepest, 1 - at
    if kind is Kind.REDUCE:
        rows = (child, above, climb, np.full(len(child), MoveOp.REDUCE))
    elif kind is Kind.BROADCAST:
        rows = (above, child, fall, np.full(len(child), MoveOp.COPY))
    else:
        ops = np.repeat([int(MoveOp.REDUCE), int(MoveOp.COPY)], len(child))
        both = np.concatenate([climb, fall - deepest])
        rows = (np.concatenate([child, above]), np.concatenate([above, child]), both, ops)
    repeat = num_chunks + deepest * (2 if kind is Kind.ALL_REDUCE else 1) - 1
    return (moves_round(*rows, repeat=repeat, chunk_step=1, wrap=False),)


def tree_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return a balanced binary tree, filled level by level from the root."""
    goal, num_chunks = Collective(kind, num_ranks, root=root), chunks or DEFAULT_CHUNKS
    place = np.arange(num_ranks)
    parent = np.where(place > 0, ((place - 1) // 2 + root) % num_ranks, -1)
    depth = np.frexp(place + 1.0)[1].astype(np.int64) - 1
    order = (place - root) % num_ranks  # the place of each rank
    return Kernel(f"tree {kind}", goal, num_chunks, tree_rounds(kind, parent[order], depth[order], num_chunks))


def half_tree(num_ranks: int, number: int) -> tuple[Ints, Ints]:
    """Return parent and depth of one of two trees, of which the first has its leaves at odd ranks.

    Rank 0 is the root; the lowest set bit of a rank is its height. The second tree is the first one mirrored (even
    counts) or moved on by one (odd counts), so that its leaves are inner ranks of the first.
    """
    rank = np.arange(num_ranks)
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    parent = np.where(rank == 0, -1, np.where(up < num_ranks, up, rank ^ bit))
    depth = _depths(parent)
    if number == 0:
        return parent, depth
    image = num_ranks - 1 - rank if num_ranks % 2 == 0 else (rank - 1) % num_ranks  # rank's place in the first tree
    back = np.argsort(image)
    moved = np.where(parent[image] >= 0, back[np.maximum(parent[image], 0)], -1)
    return moved, depth[image]


def _depths(parent: Ints) -> Ints:
    depth = np.zeros(len(parent), dtype=np.int64)
    at = parent.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[np.maximum(at, 0)], -1)
    return depth


def double_tree(num_ranks: int, *, channels: int = 1, chunks: int = 0) -> Schedule:
    """Return the all-reduce of two pipelined trees, each for half the buffer.

    c + 2 ceil(log2 n) - 1 rounds for c chunks a half; no rank sends more than twice the buffer.
    """
    kind, num_chunks = Kind.ALL_REDUCE, chunks or DEFAULT_CHUNKS
    goal = Collective(kind, num_ranks)
    stages: list[Stage] = []
    for number in range(2):
        parent, depth = half_tree(num_ranks, number)
        rounds = tree_rounds(kind, parent, depth, num_chunks)
        stages.append(whole(Kernel(f"double tree, half {number}", goal, num_chunks, rounds)))
    share = Fraction(1, 2 * channels)
    strands = tuple(Strand((stages[k % 2],), num_chunks, share, channel=k) for k in range(2 * channels))
    return Schedule("double tree", goal, strands, family="double-tree")
