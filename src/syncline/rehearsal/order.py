"""What the ranks of a rehearsal are told, and what rank 0 writes back: the two JSON files between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from syncline.rehearsal.shown import Row

PROGRESS = ".progress"
"""The suffix of the file in which rank 0 writes how far it is, beside its answer."""


class Operation(TypedDict):
    """One collective to run."""

    algorithm: str
    kind: str
    size_bytes: int
    repeats: int


class OperationTimes(Operation):
    """What it took, and how many elements of its result were wrong."""

    times_s: list[float]
    num_wrong: int | None


class RehearsalOrder(TypedDict):
    """What every rank reads; `send_Bps` holds each rank to a rate where the network does not."""

    cluster: str
    ranks: int
    send_Bps: list[float] | None
    operations: NotRequired[list[Operation]]
    programs: NotRequired[list[Operation]]
    model: NotRequired[Mapping[str, Any]]
    synchronisations: NotRequired[list[str]]
    levels: NotRequired[list[int]]
    steps: NotRequired[int]
    probe_bytes: NotRequired[int]


class WorkTimes(TypedDict):
    """What the work of a step took, and on how many processors."""

    forward_s: float
    backward_s: list[float]
    optimizer_s: float
    cores: float


CodecTimes = list[tuple[int, float, float, float]]
"""What a codec costs by size of piece: the size, then send, reduce and collect."""


class SyncTimes(TypedDict):
    """What training under one synchronisation took."""

    synchronisation: str
    times_s: list[float]
    step_s: float
    losses: list[float]
    wire_bytes: float
    work: WorkTimes


class ProgramSpans(TypedDict):
    """One run of a program: its start, and the spans of all ranks."""

    start_s: float
    rows: list[Row]


class ShownSpans(TypedDict):
    """Single runs to be drawn: programs, the last step, and when training began and ended."""

    programs: list[ProgramSpans]
    step: list[Row]
    training_s: tuple[float, float]


class TrainingTimes(TypedDict):
    """All that rank 0 writes after training."""

    costs: dict[str, float]
    work: WorkTimes
    elements: list[int]
    codecs: dict[str, CodecTimes]
    rows: list[SyncTimes]
    shown: ShownSpans
