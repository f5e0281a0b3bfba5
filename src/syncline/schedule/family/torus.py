"""Torus: rings along one dimension after the other, all dimensions and both directions at once.

Cost law (n ranks in d dimensions of sizes m): reduce-scatter along each dimension, then all-gather back: the rounds are
twice the sum of (m-1), and every rank sends 2(n-1)/n of the buffer, as a ring does. With all directions in use the
buffer is cut in 2d strands, each starting along another dimension or the other way round, so that in the first and
longest phase every link of the torus carries data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.family.grid import grid_size, nested_stage, nested_strides
from syncline.schedule.family.ring import ring_kernel
from syncline.schedule.kernel import Stage
from syncline.schedule.schedule import Schedule, Strand

KINDS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)


def torus(shape: Sequence[int], kind: Kind = Kind.ALL_REDUCE, *, channels: int = 1) -> Schedule:
    """Return rings along every dimension of a torus of this shape, ranks numbered with the last dimension fastest.

    All-reduce: 2(n-1)/n of the buffer a rank, 2 sum(m-1) rounds; 2d strands use all 2d links of a rank at once.
    """
    num_ranks = grid_size(shape)
    if kind not in KINDS:
        raise ScheduleError(f"a torus schedule does not do {kind}.", hint=f"It does {', '.join(KINDS)}.")
    axes = [axis for axis in range(len(shape)) if shape[axis] > 1] or [0]
    ways = [(start, way) for way in (1, -1) for start in range(len(axes))]
    share = Fraction(1, len(ways) * channels)
    strands = tuple(
        Strand(_stages(kind, shape, [*axes[start:], *axes[:start]], way), num_ranks, share, channel=c * len(ways) + k)
        for c in range(channels)
        for k, (start, way) in enumerate(ways)
    )
    name = f"torus {'x'.join(str(size) for size in shape)}"
    return Schedule(name, Collective(kind, num_ranks), strands, family="torus")


def _stages(kind: Kind, shape: Sequence[int], order: list[int], way: int) -> tuple[Stage, ...]:
    """Reduce-scatter along the axes in order, then all-gather back.

    An all-reduce does both along the last axis in one stage: the same rounds, and far fewer chunks to tell apart.
    """
    counts = [shape[axis] for axis in order]
    ranked = nested_strides(shape)
    strides = nested_strides(counts) if kind is Kind.ALL_REDUCE else [ranked[axis] for axis in order]

    def stage(phase: Kind, depth: int) -> Stage:
        return nested_stage(shape, order, depth, ring_kernel(phase, counts[depth], direction=way), strides, counts)

    last = len(order) - 1
    if kind is Kind.REDUCE_SCATTER:
        return tuple(stage(kind, depth) for depth in range(last + 1))
    if kind is Kind.ALL_GATHER:
        return tuple(stage(kind, depth) for depth in range(last, -1, -1))
    down = [stage(Kind.REDUCE_SCATTER, depth) for depth in range(last)]
    up = [stage(Kind.ALL_GATHER, depth) for depth in range(last - 1, -1, -1)]
    return (*down, stage(Kind.ALL_REDUCE, last), *up)
