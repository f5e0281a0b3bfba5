"""Kernels by name: what one level of a schedule in levels can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from syncline.errors import ScheduleError
from syncline.schedule.collective import Kind
from syncline.schedule.family.bruck import KINDS as BRUCK
from syncline.schedule.family.bruck import bruck_kernel, bruck_law
from syncline.schedule.family.direct import KINDS as DIRECT
from syncline.schedule.family.direct import direct_kernel, direct_law, pairwise_kernel, pairwise_law
from syncline.schedule.family.halving_doubling import (
    DOUBLING_KINDS,
    HALVING_KINDS,
    doubling_kernel,
    halving_doubling_law,
    halving_kernel,
    recursive_doubling_law,
)
from syncline.schedule.family.one_shot import KINDS as ONE_SHOT
from syncline.schedule.family.one_shot import one_shot_kernel, one_shot_law
from syncline.schedule.family.ring import KINDS as RING
from syncline.schedule.family.ring import ring_kernel, ring_law
from syncline.schedule.family.scatter_allgather import KINDS as SCATTER_ALLGATHER
from syncline.schedule.family.scatter_allgather import scatter_allgather_kernel, scatter_allgather_law
from syncline.schedule.family.tree import KINDS as TREE
from syncline.schedule.family.tree import tree_kernel, tree_law
from syncline.schedule.kernel import Kernel
from syncline.schedule.law import CostLaw


class Make(Protocol):
    """How a family makes a kernel."""

    def __call__(self, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel: ...


class KernelLaw(Protocol):
    """How a family states what a kernel costs."""

    def __call__(self, num_ranks: int, kind: Kind, *, chunks: int = 0) -> CostLaw: ...


@dataclass(frozen=True)
class LevelChoice:
    """What one level can be made of."""

    make: Make
    kinds: tuple[Kind, ...]
    law: KernelLaw


LEVELS: dict[str, LevelChoice] = {
    "ring": LevelChoice(ring_kernel, RING, ring_law),
    "tree": LevelChoice(tree_kernel, TREE, tree_law),
    "recursive-doubling": LevelChoice(doubling_kernel, DOUBLING_KINDS, recursive_doubling_law),
    "halving-doubling": LevelChoice(halving_kernel, HALVING_KINDS, halving_doubling_law),
    "bruck": LevelChoice(bruck_kernel, BRUCK, bruck_law),
    "direct": LevelChoice(direct_kernel, DIRECT, direct_law),
    "pairwise": LevelChoice(pairwise_kernel, DIRECT, pairwise_law),
    "one-shot": LevelChoice(one_shot_kernel, ONE_SHOT, one_shot_law),
    "scatter-allgather": LevelChoice(scatter_allgather_kernel, SCATTER_ALLGATHER, scatter_allgather_law),
}


def offers(family: str, kind: Kind) -> bool:
    """Whether a family has a kernel for this collective."""
    return kind in _find(family).kinds


def kernel(family: str, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the kernel of a family for one group of `num_ranks`."""
    level = _find(family)
    if kind not in level.kinds:
        raise ScheduleError(f"{family} does not do {kind}.", hint=f"It does {', '.join(level.kinds)}.")
    return level.make(kind, num_ranks, root=root, chunks=chunks)


def law(family: str, kind: Kind, num_ranks: int, *, chunks: int = 0) -> CostLaw:
    """Return what a family says its kernel costs."""
    return _find(family).law(num_ranks, kind, chunks=chunks)


def _find(family: str) -> LevelChoice:
    if family not in LEVELS:
        raise ScheduleError(f'no family that works on one level is called "{family}".',
                            hint=f"One of: {', '.join(LEVELS)}.")  # fmt: skip
    return LEVELS[family]
