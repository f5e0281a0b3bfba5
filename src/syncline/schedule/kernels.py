"""Kernels by name: what one level of a schedule in levels can be made of."""

from __future__ import annotations

from typing import Protocol

from syncline.errors import ScheduleError
from syncline.schedule.collective import Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.ring import KINDS as RING
from syncline.schedule.ring import ring_kernel


class Make(Protocol):
    """How a family makes a kernel."""

    def __call__(self, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel: ...


KERNELS: dict[str, tuple[Make, tuple[Kind, ...]]] = {
    "ring": (ring_kernel, RING),
}


def offers(family: str, kind: Kind) -> bool:
    """Whether a family has a kernel for this collective."""
    return kind in _find(family)[1]


def kernel(family: str, kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the kernel of a family for one group of `num_ranks`."""
    make, kinds = _find(family)
    if kind not in kinds:
        raise ScheduleError(f"{family} does not do {kind}.", hint=f"It does {', '.join(kinds)}.")
    return make(kind, num_ranks, root=root, chunks=chunks)


def _find(family: str) -> tuple[Make, tuple[Kind, ...]]:
    if family not in KERNELS:
        raise ScheduleError(f'no family that works on one level is called "{family}".',
                            hint=f"One of: {', '.join(KERNELS)}.")  # fmt: skip
    return KERNELS[family]
