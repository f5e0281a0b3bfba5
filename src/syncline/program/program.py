"""The program: a proved schedule bound to devices, buffers, channels and a codec; what each rank really does, in order.

Simulators, the lab and the runtime all execute this. It stays factored like its schedule: 131,072 ranks are a few
tables, and the operations of one rank are expanded when asked for.

A rank executes the rounds of a strand in order: it posts all sends and receives of the round, waits for all of them,
then adds what is to be reduced. Strands run side by side. Steps follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.codec.codec import RAW, Codec
from syncline.describe.plain import JsonObject
from syncline.errors import ProgramError
from syncline.program.placement import Placement
from syncline.schedule import Collective, Proved, Schedule
from syncline.schedule.collective import Ints
from syncline.schedule.schedule import NO_HOME


@dataclass(frozen=True, eq=False)
class ProgramStep:
    """One schedule, proved, with the codec its bytes travel in."""

    proved: Proved
    codec: Codec = RAW

    @property
    def collective(self) -> Collective:
        return self.proved.schedule.collective

    @property
    def name(self) -> str:
        return self.proved.schedule.name


@dataclass(frozen=True)
class VendorStep:
    """A collective that the platform's own library performs (NCCL, RCCL); it chooses how."""

    collective: Collective
    library: str = "nccl"

    @property
    def name(self) -> str:
        return f"{self.library} {self.collective.kind}"


@dataclass(frozen=True, eq=False)
class RankRound:
    """What one rank does in one round of one strand, in bytes of its buffer. Columns: peer, offset, size, reduce.

    For helpers (vertices past the ranks) the buffer is theirs alone, laid out like a rank's.
    """

    step: int
    strand: int
    channel: int
    rail: int | None
    round: int
    sends: Messages
    receives: Messages


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages of one round at one rank, in the order they are posted; `reduce` says whether what comes is added."""

    peer: Ints
    offset_bytes: Ints
    size_bytes: Ints
    reduce: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.peer)


@dataclass(frozen=True, eq=False)
class Program:
    """Steps one after the other on one placement."""

    name: str
    steps: tuple[ProgramStep | VendorStep, ...]
    placement: Placement

    def __post_init__(self) -> None:
        if not self.steps:
            raise ProgramError("a program needs at least one step.")
        for step in self.steps:
            if step.collective.num_ranks != self.placement.num_ranks:
                raise ProgramError(f"{step.name} is for {step.collective.num_ranks} ranks, but "
                                   f"{self.placement.num_ranks} are placed.")  # fmt: skip

    @property
    def num_ranks(self) -> int:
        return self.placement.num_ranks

    @property
    def collective(self) -> Collective:
        """The collective of the first step."""
        return self.steps[0].collective

    def then(self, other: Program) -> Program:
        """Return one program that does this and then the other, on the same placement."""
        if not np.array_equal(self.placement.device, other.placement.device):
            raise ProgramError("programs on different placements cannot follow each other.")
        return Program(f"{self.name}, {other.name}", (*self.steps, *other.steps), self.placement)

    def vertex_devices(self, step: int) -> NDArray[np.int32]:
        """Return the device of every vertex of a step: ranks, then helpers (-1: a helper not placed yet)."""
        chosen = self.steps[step]
        if isinstance(chosen, VendorStep):
            return self.placement.device
        schedule = chosen.proved.schedule
        home = schedule.device_rank()
        device = np.where(home == NO_HOME, -1, self.placement.device[np.maximum(home, 0)]).astype(np.int32)
        loose = np.flatnonzero(home == NO_HOME)
        known = min(len(loose), len(self.placement.helpers))
        device[loose[:known]] = self.placement.helpers[:known]
        return device

    def rank_rounds(self, vertex: int, size_bytes: int) -> Iterator[RankRound]:
        """Yield what one rank (or helper) does with a buffer of `size_bytes`, strand by strand, round by round."""
        for number, step in enumerate(self.steps):
            if isinstance(step, VendorStep):
                raise ProgramError(f"{step.name} has no rounds of its own: the library performs it.",
                                   hint="Hand this step to the library.")  # fmt: skip
            yield from _rounds_of(step.proved.schedule, number, vertex, size_bytes)

    def to_json(self) -> JsonObject:
        """Return a short description of the program."""
        return {
            "name": self.name,
            "ranks": self.num_ranks,
            "placement": self.placement.name,
            "steps": [
                {
                    "name": s.name,
                    "collective": s.collective.to_json(),
                    **({"codec": s.codec.name} if isinstance(s, ProgramStep) else {"library": s.library}),
                }
                for s in self.steps
            ],
        }


def _rounds_of(schedule: Schedule, number: int, vertex: int, size_bytes: int) -> Iterator[RankRound]:
    layout = [schedule.chunk_layout(strand, size_bytes) for strand in range(len(schedule.strands))]
    for strand, round_, moves in schedule.rank_moves(vertex):
        offset, size = layout[strand]
        messages = []
        for mine, peer in ((moves.src == vertex, moves.dst), (moves.dst == vertex, moves.src)):
            rows = np.flatnonzero(mine)
            rows = rows[np.lexsort((moves.chunk[rows], peer[rows]))]
            chunk = moves.chunk[rows]
            messages.append(Messages(peer[rows], offset[chunk], size[chunk], moves.op[rows].astype(bool)))
        part = schedule.strands[strand]
        yield RankRound(number, strand, part.channel, part.rail, round_, *messages)
