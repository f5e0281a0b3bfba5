"""Prove a strand of several stages from the proofs of its kernels.

Each kernel is proved for its own goal from *any* starting data: what a taker ends with is exactly the sum of what the
givers of its group held, whatever all other cells held. So a stage may be replaced by its goal: takers get the sum,
every other cell the group touches becomes unknown data with a fresh random number. Chunks that no stage tells apart
(same groups, same local giver and taker in each stage) go through the same sums and are proved as one, and so are
chunks that a change of names turns into each other (`symmetry`). Sound for any
strand; a strand that relies on what a kernel leaves in cells it promises nothing about is refused.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import NotProvedError
from syncline.schedule.collective import ALL, Collective, Ints
from syncline.schedule.kernel import Stage
from syncline.schedule.proof.cover import Cover, cover
from syncline.schedule.proof.field import Numbers, Values
from syncline.schedule.proof.replay import Weights, expected, starts
from syncline.schedule.proof.symmetry import orbits
from syncline.schedule.schedule import Schedule, Strand

STATE_CELLS = 1 << 22


def compose(schedule: Schedule, strand: Strand, numbers: Numbers, *, symmetric: bool = True) -> None:
    """Return when the stages, each replaced by its goal, perform the collective; else raise `NotProvedError`."""
    _check_helpers(schedule, strand)
    covers = [cover(stage, strand.num_chunks) for stage in strand.stages]
    chunks = _representatives(schedule.collective, strand, covers, symmetric)
    weights = Weights.draw(numbers, schedule.num_ranks)
    unknown = [numbers.unknowns(schedule.num_ranks) for _ in strand.stages]
    width = max(1, STATE_CELLS // schedule.num_ranks)
    for low in range(0, len(chunks), width):
        part = chunks[low : low + width]
        state = _start(schedule.collective, strand.num_chunks, weights, part)
        for number, (stage, covered) in enumerate(zip(strand.stages, covers, strict=True)):
            _do_stage(stage, covered, part, state, numbers, unknown[number], f"{schedule.name} stage {number}")
        _check(schedule, strand, numbers, weights, part, state)


def _check_helpers(schedule: Schedule, strand: Strand) -> None:
    """Helpers start at zero once: after one stage they hold unknown data."""
    seen = np.zeros(schedule.num_vertices, dtype=np.int64)
    for stage in strand.stages:
        seen[np.unique(stage.members[:, stage.kernel.num_ranks :])] += 1
    if (seen > 1).any():
        raise NotProvedError(
            f"helper {int(np.argmax(seen > 1))} serves in two stages and is zero only once.",
            where=schedule.name,
            hint="Give each stage its own helpers.",
        )


def _representatives(goal: Collective, strand: Strand, covers: list[Cover], symmetric: bool) -> Ints:
    """Return one chunk of every set that nothing tells apart, or that a change of names turns into another."""
    label = goal.blocks(strand.num_chunks)
    for part in covers:
        for column in (part.which, part.block):
            label = np.unique(label * (int(column.max()) + 2) + column + 1, return_inverse=True)[1]
    chunks = np.sort(np.unique(label, return_index=True)[1])
    if not symmetric or len(chunks) < 2:
        return chunks
    same = orbits(goal, strand.stages, covers, strand.num_chunks)
    _, first = np.unique(same[chunks], return_index=True)
    return np.sort(chunks[first])


def _start(goal: Collective, num_chunks: int, weights: Weights, chunks: Ints) -> Values:
    rank = np.arange(goal.num_ranks)
    cells = starts(goal, num_chunks, weights, np.tile(rank, len(chunks)), np.repeat(chunks, goal.num_ranks))
    return np.ascontiguousarray(cells.reshape(len(chunks), goal.num_ranks))


def _do_stage(
    stage: Stage, covered: Cover, chunks: Ints, state: Values, numbers: Numbers, unknown: Values, where: str
) -> None:
    goal, ranks = stage.kernel.goal, stage.members[:, : stage.kernel.num_ranks]
    givers, takers = goal.givers(goal.num_blocks), goal.takers(goal.num_blocks)
    for number in np.unique(covered.which[chunks]):
        if number < 0:
            continue
        group = ranks[stage.base == covered.bases[number]]
        if len(np.unique(group)) != group.size:
            raise NotProvedError("two groups of one stage share a rank and a chunk.", where=where)
        rows = np.flatnonzero(covered.which[chunks] == number)
        block = covered.block[chunks[rows]]
        _do_goal(state, rows, group, givers[block], takers[block], numbers, unknown)


def _do_goal(
    state: Values, rows: Ints, group: Ints, giver: Ints, taker: Ints, numbers: Numbers, unknown: Values
) -> None:
    """Replace the cells (rows x group) by what the goal makes of them; givers and takers are one per row."""
    held = state[rows[:, None, None], group[None, :, :]]
    each = np.arange(len(rows))
    value = numbers.total(held, axis=2) if giver[0] == ALL else held[each, :, giver]
    if taker[0] == ALL:
        held[:] = value[:, :, None]
    else:
        held[:] = unknown[group][None, :, :]
        held[each, :, taker] = value
    state[rows[:, None, None], group[None, :, :]] = held


def _check(schedule: Schedule, strand: Strand, numbers: Numbers, weights: Weights, chunks: Ints, state: Values) -> None:
    goal = schedule.collective
    taker = goal.takers(strand.num_chunks, chunks)
    wrong = state != expected(goal, strand.num_chunks, numbers, weights, chunks)[:, None]
    wrong &= (taker[:, None] == ALL) | (taker[:, None] == np.arange(goal.num_ranks))
    if wrong.any():
        row, rank = (int(at[0]) for at in np.nonzero(wrong))
        raise NotProvedError(
            f"rank {rank} does not end with the right chunk {int(chunks[row])}: {goal}.",
            where=schedule.name,
            detail="Every kernel does what it says; the stages do not add up to the collective.",
            hint="Check which ranks and chunks each stage works on.",
        )
