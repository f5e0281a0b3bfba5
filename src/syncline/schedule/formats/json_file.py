"""Schedules as JSON: lossless, readable, and safe to read from anybody.

A round repeats in the file as it does in memory, so a 4,096-rank ring is a few hundred kilobytes. A column that is one
number all the way down is written as that number.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncline.describe.mistakes import first_mistake
from syncline.describe.plain import JsonObject
from syncline.errors import ScheduleError
from syncline.schedule.collective import MAX_CHUNKS, MAX_RANKS, Collective, Ints, read_kind
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.moves import Round, moves_round
from syncline.schedule.schedule import Schedule, Strand

FORMAT = "syncline-schedule"
VERSION = 1
MAX_BYTES = 1 << 27
_STEPS = ("src_step", "dst_step", "chunk_step")
_COLUMNS = ("src", "dst", "chunk", "count", "op", "block")


def to_json(schedule: Schedule) -> JsonObject:
    """Return a schedule as a JSON object; kernels that strands share are written once."""
    kernels: dict[int, int] = {}
    listed: list[Kernel] = []
    for strand in schedule.strands:
        for stage in strand.stages:
            if id(stage.kernel) not in kernels:
                kernels[id(stage.kernel)] = len(listed)
                listed.append(stage.kernel)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": schedule.name,
        "family": schedule.family,
        "collective": schedule.collective.to_json(),
        "num_helpers": schedule.num_helpers,
        "homes": list(schedule.homes),
        "kernels": [_kernel_out(kernel) for kernel in listed],
        "strands": [_strand_out(strand, kernels) for strand in schedule.strands],
    }


def dumps(schedule: Schedule) -> str:
    """Return a schedule as JSON text."""
    return json.dumps(to_json(schedule), separators=(",", ":")) + "\n"


def _kernel_out(kernel: Kernel) -> JsonObject:
    return {
        "name": kernel.name,
        "goal": kernel.goal.to_json(),
        "num_chunks": kernel.num_chunks,
        "num_helpers": kernel.num_helpers,
        "rounds": [_round_out(entry) for entry in kernel.rounds],
    }


def _round_out(entry: Round) -> JsonObject:
    out: JsonObject = {"src": entry.src.tolist()}
    out |= {name: _column_out(getattr(entry, name)) for name in _COLUMNS[1:]}
    out |= {"repeat": entry.repeat, "at_once": entry.at_once, "wrap": entry.wrap, "window": entry.window}
    out |= {name: getattr(entry, name) for name in _STEPS}
    return out | {
        "src_circle": [entry.src_base, entry.src_size],
        "dst_circle": [entry.dst_base, entry.dst_size],
    }


def _column_out(column: NDArray[Any]) -> int | list[int]:
    values: list[int] = column.tolist()
    return values[0] if len(set(values)) == 1 and len(values) > 1 else values


def _strand_out(strand: Strand, kernels: dict[int, int]) -> JsonObject:
    pieces = {"pieces": strand.pieces} if strand.pieces > 1 else {}
    return {
        "share": str(strand.share),
        "channel": strand.channel,
        "rail": strand.rail,
        "num_chunks": strand.num_chunks,
        "weights": list(strand.weights),
        **pieces,
        "stages": [_stage_out(stage, kernels[id(stage.kernel)]) for stage in strand.stages],
    }


def _stage_out(stage: Stage, kernel: int) -> JsonObject:
    return {
        "kernel": kernel,
        "members": stage.members.tolist(),
        "base": _column_out(stage.base),
        "index": [list(axis) for axis in stage.index],
        "spans": [list(axis) for axis in stage.spans],
    }


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Whole = Annotated[int, Field(ge=-(1 << 40), le=1 << 40)]
Natural = Annotated[int, Field(ge=0, le=1 << 31)]
Chunks = Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
Vertices = Annotated[int, Field(ge=0, le=2 * MAX_RANKS)]
Column = Annotated[Whole | list[Whole], Field(union_mode="left_to_right")]
Pair = tuple[Natural, Natural]
Name = Annotated[str, Field(max_length=1000)]


class _Collective(_Model):
    kind: str
    num_ranks: Whole
    root: Whole = 0
    peer: Whole = -1
    sizes: list[Natural] = []

    def made(self) -> Collective:
        return Collective(read_kind(self.kind), self.num_ranks, self.root, self.peer, tuple(self.sizes))


class _Round(_Model):
    src: Column
    dst: Column
    chunk: Column
    count: Column
    op: Literal[0, 1] | list[Literal[0, 1]]
    block: Column
    src_step: Whole
    dst_step: Whole
    chunk_step: Whole
    repeat: Natural
    at_once: bool
    wrap: bool
    window: Annotated[int, Field(ge=0, le=MAX_CHUNKS)]
    src_circle: Annotated[Pair, Field(strict=False)]
    dst_circle: Annotated[Pair, Field(strict=False)]


class _Kernel(_Model):
    name: Name
    goal: _Collective
    num_chunks: Chunks
    num_helpers: Natural
    rounds: list[_Round]

    def made(self) -> Kernel:
        rounds = tuple(moves_round(**entry.model_dump()) for entry in self.rounds)
        return Kernel(self.name, self.goal.made(), self.num_chunks, rounds, self.num_helpers)


class _Stage(_Model):
    kernel: Natural
    members: list[list[Vertices]]
    base: Column
    index: list[Annotated[Pair, Field(strict=False)]]
    spans: list[Annotated[Pair, Field(strict=False)]]

    def made(self, kernels: list[Kernel]) -> Stage:
        if self.kernel >= len(kernels):
            raise ScheduleError(f"there are {len(kernels)} kernels, and no kernel {self.kernel}.")
        kernel = kernels[self.kernel]
        if any(len(row) != kernel.num_vertices for row in self.members):
            raise ScheduleError(f"every group needs {kernel.num_vertices} members.")
        members: Ints = np.array(self.members, dtype=np.int64).reshape(-1, kernel.num_vertices)
        base = np.broadcast_to(np.array(self.base, dtype=np.int64), len(members))
        return Stage(kernel, members, base, tuple(self.index), tuple(self.spans))


class _Strand(_Model):
    share: Annotated[str, Field(max_length=64, pattern=r"^\d+(/[1-9]\d*)?$")]
    channel: Natural
    rail: Natural | None
    num_chunks: Chunks
    weights: list[Natural]
    pieces: Chunks = 1
    stages: list[_Stage]

    def made(self, kernels: list[Kernel]) -> Strand:
        stages = tuple(stage.made(kernels) for stage in self.stages)
        share, weights = Fraction(self.share), tuple(self.weights)
        return Strand(stages, self.num_chunks, share, self.channel, self.rail, weights, self.pieces)


class _Schedule(_Model):
    format: Literal["syncline-schedule"]
    version: Literal[1]
    name: Name
    family: Name = ""
    collective: _Collective
    num_helpers: Natural
    homes: list[Annotated[int, Field(ge=-1, le=MAX_RANKS)]]
    kernels: list[_Kernel]
    strands: list[_Strand]

    def made(self) -> Schedule:
        kernels = [kernel.made() for kernel in self.kernels]
        strands = tuple(strand.made(kernels) for strand in self.strands)
        goal, homes = self.collective.made(), tuple(self.homes)
        return Schedule(self.name, goal, strands, self.num_helpers, homes, family=self.family)


def loads(text: str | bytes, name: str = "schedule") -> Schedule:
    """Read a schedule from JSON text; anything wrong is a `ScheduleError` that says where."""
    if len(text) > MAX_BYTES:
        raise ScheduleError(f"{len(text):,} bytes are more than the {MAX_BYTES:,} a schedule may have.", where=name)
    try:
        return _Schedule.model_validate(json.loads(text)).made()
    except json.JSONDecodeError as error:
        where = f"{name} line {error.lineno} column {error.colno}"
        raise ScheduleError(f"this is not JSON: {error.msg}.", where=where) from None
    except ValidationError as error:
        raise ScheduleError(f"{first_mistake(error)}.", where=name) from None
    except ScheduleError as error:
        error.where = f"{name}: {error.where}" if error.where else name
        raise
    except (UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise ScheduleError(f"this is not JSON that can be read: {type(error).__name__}.", where=name) from None
