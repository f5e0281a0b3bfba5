"""A bucket of gradients: which parameters it holds, and the pieces it is exchanged in."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import torch

from syncline.program.stages import BucketProgram
from syncline.runtime.sync.conveyor import Piece
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.team import Team


@dataclass(frozen=True)
class Layout:
    """The parameters of a bucket in order: which element belongs to which, the same on every rank."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def fingerprint(self) -> int:
        """Return a number that differs between layouts."""
        return zlib.crc32(repr((self.names, self.shapes)).encode())

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


class BoundPiece(Piece, Protocol):
    """A piece that can be moved to other memory."""

    def bind(self, values: torch.Tensor, scale: float | None) -> None: ...


class Bucket:
    """One bucket with its pieces; `values` is the float32 memory that pieces work on."""

    def __init__(self, layout: Layout, buffer: torch.Tensor, nan: str, team: Team, program: BucketProgram) -> None:
        self.layout = layout
        self.program = program
        self.nan = nan
        self.team = team
        self.pieces: list[BoundPiece] = []
        self.buffer = buffer
        is_float32 = buffer.dtype == torch.float32
        self.staging = None if is_float32 else torch.empty(buffer.numel(), dtype=torch.float32, device=buffer.device)
        self.step: Step

    @property
    def values(self) -> torch.Tensor:
        """The float32 numbers that are exchanged: the buffer itself where it is float32."""
        return self.buffer if self.staging is None else self.staging

    def begin(self, buffer: torch.Tensor, step: Step, scale: float | None = None) -> None:
        """Work on this step's gradients, wherever they are now; sums that are only scattered are scaled."""
        self.step = step
        moved = buffer.data_ptr() != self.buffer.data_ptr()
        self.buffer = buffer
        if (moved and self.staging is None) or scale is not None:
            for piece in self.pieces:
                piece.bind(self.values, scale)
