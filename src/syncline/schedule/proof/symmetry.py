"""Strands that are the same under a change of names: fewer chunks to prove.

A hierarchical all-gather tells all its chunks apart, so proving each would take ranks x ranks cells. But moving every
rank on by one host, and every chunk with it, turns each stage into itself; then what happens to a chunk happens to its
image with all ranks renamed. Candidates are read off the stages (one step along each one's groups), and each is checked
in full, on every group, chunk and block, before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.schedule.collective import OWNED, Collective, Ints, Kind
from syncline.schedule.kernel import Stage
from syncline.schedule.proof.cover import Cover

_ALIKE = frozenset({Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER})
"""Goals in which no member of a group is special."""


def orbits(goal: Collective, stages: Sequence[Stage], covers: Sequence[Cover], num_chunks: int) -> Ints:
    """Return, for each chunk, the smallest chunk that a change of names turns into it."""
    smallest = np.arange(num_chunks, dtype=np.int64)
    if goal.kind not in _ALIKE or not all(_plain(stage) for stage in stages):
        return smallest
    turns = []
    for stage in stages:
        renamed = _step(stage, goal.num_ranks, num_chunks)
        if renamed is not None and _same(goal, stages, covers, *renamed):
            turns.append(renamed[1])
    for _ in range(len(turns)):  # an orbit that winds through all turns settles after as many passes
        for turn in turns:
            smallest = _smallest(smallest, turn)
    return smallest


def _plain(stage: Stage) -> bool:
    return stage.kernel.goal.kind in _ALIKE and not stage.kernel.num_helpers


def _step(stage: Stage, num_ranks: int, num_chunks: int) -> tuple[Ints, Ints] | None:
    """Return new names for ranks and chunks: one step along this stage's groups."""
    size = stage.kernel.num_ranks
    if size < 2 or len(stage.index) != 1 or stage.index[0][0] != size or not stage.num_groups:
        return None
    stride = int(stage.members[0, 1] - stage.members[0, 0])
    rank, chunk = _shift(num_ranks, stride, size), _shift(num_chunks, stage.index[0][1], size)
    return None if rank is None or chunk is None else (rank, chunk)


def _shift(count: int, stride: int, size: int) -> Ints | None:
    at = np.arange(count, dtype=np.int64)
    if stride < 1:
        return None
    moved = at + np.where(at // stride % size == size - 1, -(size - 1) * stride, stride)
    whole = moved.min() >= 0 and moved.max() < count and len(np.unique(moved)) == count
    return moved if whole else None


def _same(goal: Collective, stages: Sequence[Stage], covers: Sequence[Cover], rank: Ints, chunk: Ints) -> bool:
    """Whether the new names turn the collective and every stage into itself."""
    block = goal.blocks(len(chunk))
    if goal.kind in OWNED and not np.array_equal(block[chunk], rank[block]):
        return False
    return all(_same_stage(stage, cover, rank, chunk) for stage, cover in zip(stages, covers, strict=True))


def _same_stage(stage: Stage, cover: Cover, rank: Ints, chunk: Ints) -> bool:
    blocks = stage.kernel.goal.num_blocks
    label = np.where(cover.which < 0, 0, 1 + cover.which * blocks + cover.block)
    image = np.zeros(int(label.max()) + 1, dtype=np.int64)
    image[label] = label[chunk]
    if not np.array_equal(image[label], label[chunk]):  # chunks that were one must stay one
        return False
    used = np.unique(label)
    if len(np.unique(image[used])) != len(used) or (0 in used and image[0] != 0):
        return False
    return _same_groups(stage, label, image, rank)


def _same_groups(stage: Stage, label: Ints, image: Ints, rank: Ints) -> bool:
    """Whether members that are together, each with the block it stands for, are together under their new names."""
    offsets = stage.chunk_offsets()[:: stage.kernel.num_chunks // stage.kernel.goal.num_blocks]
    first = stage.base[:, None] + (offsets if len(offsets) > 1 else np.repeat(offsets, stage.kernel.num_ranks))[None, :]
    if first.shape != stage.members.shape:
        return False
    here = label[first]
    width = len(image)
    key = (stage.members * width + here).ravel()
    order = np.argsort(key)
    if (key[order][1:] == key[order][:-1]).any():
        return False
    wanted = (rank[stage.members] * width + image[here]).ravel()
    at = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    if not np.array_equal(key[order][at], wanted):
        return False
    group = (order[at] // stage.kernel.num_ranks).reshape(stage.members.shape)
    return bool((group == group[:, :1]).all())


def _smallest(label: Ints, turn: Ints) -> Ints:
    """Return the smallest label along each cycle of a permutation."""
    steps, seen = turn, 1
    while seen < len(turn):
        label = np.minimum(label, label[steps])
        if np.array_equal(label, label[turn]):
            break
        steps, seen = steps[steps], 2 * seen
    return label
