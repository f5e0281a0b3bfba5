"""Rank grids: which ranks form a group along each axis, and where they sit on hosts.

Ranks are numbered with the first axis of `order` fastest: tensor-parallel neighbours are neighbours in rank, so that
they share a host; then context, data and pipeline. Experts are spread over consecutive ranks of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.errors import DescriptionError
from syncline.workload.parallel import Parallel

Ints = npt.NDArray[np.int64]
AXES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True, eq=False)
class Grid:
    """All ranks of a job as a box of axes."""

    sizes: dict[str, int]
    order: tuple[str, ...]
    ep: int = 1

    @property
    def num_ranks(self) -> int:
        return int(np.prod([self.sizes[axis] for axis in self.order]))

    def stride(self, axis: str) -> int:
        """Return how far apart neighbours along an axis are in rank."""
        if axis == "ep":
            return 1
        before = self.order[: self.order.index(axis)]
        return int(np.prod([self.sizes[a] for a in before])) if before else 1

    def coordinates(self, ranks: npt.ArrayLike) -> dict[str, Ints]:
        """Return the position of ranks along every axis."""
        left = np.asarray(ranks, dtype=np.int64)
        found = {}
        for axis in self.order:
            found[axis] = left % self.sizes[axis]
            left = left // self.sizes[axis]
        return found


def grid_of(split: Parallel) -> Grid:
    """Return the grid of a split whose `dp` is known."""
    order = tuple(axis for axis in split.order if axis != "ep")
    if sorted(order) != sorted(AXES):
        raise DescriptionError(
            f"the order of axes is {', '.join(split.order)}; it must name {', '.join(AXES)} once each.",
            hint="The usual one is [tp, cp, dp, pp].",
        )
    return Grid({"tp": split.tp, "cp": split.cp, "dp": split.dp or 1, "pp": split.pp}, order, split.ep)
