"""The families that work on one group of ranks: what a whole schedule, or one level of a schedule, can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from syncline.errors import ScheduleError
from syncline.schedule.collective import Kind
from syncline.schedule.family import bruck, direct, halving_doubling, one_shot, ring, scatter_allgather, tree
from syncline.schedule.kernel import Kernel


class Make(Protocol):
    """How a family makes a kernel."""

    def __call__(self, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel: ...


@dataclass(frozen=True)
class LevelFamily:
    """A family whose schedule is one kernel: what it is, which collectives it does, which options change it."""

    summary: str
    make: Make
    kinds: tuple[Kind, ...]
    takes: tuple[str, ...] = ()


_PAIRS = (Kind.ALL_TO_ALL, *(kind for kind in Kind if kind is not Kind.ALL_TO_ALL))
LEVELS: dict[str, LevelFamily] = {
    "ring": LevelFamily("every rank sends to the next; fewest bytes", ring.ring_kernel, ring.KINDS,
                        ("root", "directions", "chunks")),
    "tree": LevelFamily("one binary tree, pipelined; few rounds", tree.tree_kernel, tree.KINDS, ("root", "chunks")),
    "recursive-doubling": LevelFamily("whole buffer to partners 1, 2, 4 ... away; fewest rounds",
                                      halving_doubling.doubling_kernel, halving_doubling.KINDS),
    "halving-doubling": LevelFamily("halves, then doubles: few rounds and few bytes", halving_doubling.halving_kernel,
                                    halving_doubling.KINDS),
    "bruck": LevelFamily("logarithmic all-gather and all-to-all for any rank count", bruck.bruck_kernel, bruck.KINDS),
    "direct": LevelFamily("everyone to everyone in one round", direct.direct_kernel, _PAIRS,
                          ("root", "peer", "sizes")),
    "pairwise": LevelFamily("everyone to everyone, one partner a round", direct.pairwise_kernel, _PAIRS,
                            ("root", "peer", "sizes")),
    "one-shot": LevelFamily("everyone sends everything to everyone: one round, for small messages",
                            one_shot.one_shot_kernel, one_shot.KINDS),
    "scatter-allgather": LevelFamily("the root gives each its part, all hand theirs on: two rounds",
                                     scatter_allgather.scatter_allgather_kernel, scatter_allgather.KINDS, ("root",)),
}  # fmt: skip


def offers(family: str, kind: Kind) -> bool:
    """Whether a family has a kernel for this collective."""
    return kind in _find(family).kinds


def kernel(family: str, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the kernel of a family for one group of `num_ranks`."""
    level = _find(family)
    if kind not in level.kinds:
        raise ScheduleError(f"{family} does not do {kind}.", hint=f"It does {', '.join(level.kinds)}.")
    return level.make(kind, num_ranks, root=root, chunks=chunks)


def _find(family: str) -> LevelFamily:
    if family not in LEVELS:
        problem = f'no family that works on one level is called "{family}".'
        raise ScheduleError(problem, hint=f"One of: {', '.join(LEVELS)}.")
    return LEVELS[family]
