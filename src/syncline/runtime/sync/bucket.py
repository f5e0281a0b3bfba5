"""A bucket of gradients: which parameters it holds, and the pieces it is exchanged in."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch

from syncline.program.stages import BucketProgram
from syncline.runtime.sync.conveyor import Piece
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.team import Team

Axes = tuple[str, ...]
"""The mesh axes that a parameter is cut on, beside those that gradients are averaged over."""


@dataclass(frozen=True)
class Layout:
    """The parameters of a bucket in order: which element belongs to which, the same on every rank.

    Parameters that are cut on other mesh axes are encoded apart: what is whole on an axis is then encoded from equal
    numbers on all its ranks, and decodes to equal bits there. `borders` are the elements at which they part, and
    `places` where each parameter begins in the buffer, where that is in another order.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    borders: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @classmethod
    def apart(cls, names: Sequence[str], shapes: Sequence[tuple[int, ...]], axes: Sequence[Axes]) -> Layout:
        """Return the layout of a buffer that holds these parameters, in which each is cut on its axes."""
        if len(set(axes)) <= 1:
            return cls(tuple(names), tuple(shapes))
        sizes = [math.prod(shape) for shape in shapes]
        starts = [0, *accumulate(sizes)]
        order = sorted(range(len(names)), key=lambda k: axes[k])
        changes = [at for at in range(1, len(order)) if axes[order[at]] != axes[order[at - 1]]]
        return cls(
            tuple(names[k] for k in order),
            tuple(shapes[k] for k in order),
            tuple(sum(sizes[k] for k in order[:at]) for at in changes),
            tuple(starts[k] for k in order),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """Stretches that lie elsewhere in the buffer: where each begins here and there, and its elements."""
        found: list[tuple[int, int, int]] = []
        for here, there, size in zip(accumulate(self.sizes, initial=0), self.places, self.sizes, strict=False):
            last = found[-1] if found else (0, -1, 0)
            if last[1] + last[2] == there:
                found[-1] = (last[0], last[1], last[2] + size)
            else:
                found.append((here, there, size))
        return tuple(found)

    def parts(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return each parameter's part of a buffer, in the order of the names."""
        if not self.places:
            return list(torch.split(buffer, list(self.sizes)))
        return [buffer[place : place + size] for place, size in zip(self.places, self.sizes, strict=True)]

    def fingerprint(self) -> int:
        """Return a number that differs between layouts."""
        return zlib.crc32(repr((self.names, self.shapes, self.borders)).encode())

    def parameter_at(self, element: int) -> int:
        """Return the index of the parameter that holds an element."""
        for index, end in enumerate(accumulate(self.sizes)):
            if element < end:
                return index
        return len(self.sizes) - 1


@dataclass(frozen=True)
class Order:
    """A flat buffer of a step to be replaced by its average over the ranks, some time later; `done` is called then."""

    index: int
    buffer: torch.Tensor
    layout: Layout
    step: Step
    done: Callable[[BaseException | None], None]
    last: bool = False
    codec: str = ""
    """In place of the step's, for what must not lose a bit."""


class BoundPiece(Piece):
    """A piece that can be moved to other memory."""

    def bind(self, values: torch.Tensor, scale: float | None = None) -> None:
        """Work on this memory from now on; sums that stay with their owners are multiplied by `scale`."""


class Bucket:
    """One bucket with its pieces; `values` is the float32 memory that pieces work on."""

    def __init__(self, layout: Layout, buffer: torch.Tensor, nan: str, team: Team, program: BucketProgram) -> None:
        self.layout = layout
        self.program = program
        self.nan = nan
        self.team = team
        self.pieces: list[BoundPiece] = []
        self.buffer = buffer
        as_it_is = buffer.dtype == torch.float32 and not layout.places
        self.staging = None if as_it_is else torch.empty(buffer.numel(), dtype=torch.float32, device=buffer.device)
        self.step: Step

    @property
    def values(self) -> torch.Tensor:
        """The float32 numbers that are exchanged: the buffer itself where it is float32, and in their order."""
        return self.buffer if self.staging is None else self.staging

    def begin(self, buffer: torch.Tensor, step: Step, scale: float | None = None) -> None:
        """Work on this step's gradients, wherever they are now; sums that are only scattered are scaled."""
        self.step = step
        moved = buffer.data_ptr() != self.buffer.data_ptr()
        self.buffer = buffer
        if (moved and self.staging is None) or scale is not None:
            for piece in self.pieces:
                piece.bind(self.values, scale)

    def bring(self, low: int, high: int) -> None:
        """Copy a stretch to the memory that pieces work on, where that is not the buffer itself."""
        for staged, taken in self._copies(low, high):
            staged.copy_(taken)

    def take_back(self, low: int, high: int) -> None:
        """Copy a stretch back to where it came from."""
        for staged, taken in self._copies(low, high):
            taken.copy_(staged)

    def _copies(self, low: int, high: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.staging is None:
            return
        for here, there, size in self.layout.runs or ((0, 0, self.buffer.numel()),):
            begin, end = max(low, here), min(high, here + size)
            if begin < end:
                yield self.staging[begin:end], self.buffer[begin - here + there : end - here + there]
