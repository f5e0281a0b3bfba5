"""A span as it comes in while a job runs, read from JSON without trusting any of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from syncline.timeline import SpanKind
from syncline.watch.clock import Clock
from syncline.watch.foreign import MAX_RANK, Foreign

MAX_NAME = 80
MAX_BYTES = 1 << 62
MAX_MOMENT_S = 1e11
"""Later than any clock: 3,000 years."""
AHEAD_S = 60.0
"""A span that ends so far in the future is a lie or another clock's; it would hide all that comes after it."""
_KINDS = {kind.name.lower(): kind for kind in SpanKind}


class JobPhase(StrEnum):
    """What a job says it is doing when it is not training, so that its silence is not taken for a hang."""

    START = "start"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    END = "end"
    FAILED = "failed"


@dataclass(frozen=True)
class SpanEvent:
    """One thing one rank did; times are this host's monotonic clock."""

    rank: int
    kind: SpanKind
    name: str
    start_s: float
    end_s: float
    size_bytes: int = 0
    step: int = -1
    peer: int = -1
    group: str = ""
    codec: str = ""

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class PhaseEvent:
    """A rank entered a phase."""

    rank: int
    phase: JobPhase
    at_s: float


@dataclass(frozen=True)
class PendingEvent:
    """A collective that a rank has entered or is still to enter, as a flight recorder tells: not finished."""

    rank: int
    name: str
    group: str
    number: int
    size_bytes: int
    is_started: bool


@dataclass(frozen=True)
class Hang:
    """One place in a hung job: who is waited for, in what, and who waits."""

    ranks: tuple[int, ...]
    collective: str
    waiting: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class StuckEvent:
    """What a source says holds up the job now; nothing: all moves, as far as it sees."""

    source: str
    hangs: tuple[Hang, ...]


Event = SpanEvent | PhaseEvent | PendingEvent | StuckEvent


class SpanSource(ABC):
    """One origin of events; `num_bad` counts refusals."""

    name: str
    num_bad: int = 0
    problem: str = ""

    @abstractmethod
    def read(self) -> Sequence[Event]:
        """Return what is new since the last call."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Let go of sockets and threads."""


def _cut(value: object) -> object:
    return value[:MAX_NAME] if isinstance(value, str) else value


def _whole(most: int, instead: int) -> BeforeValidator:
    """Give a whole number, or another for what is none or too large: it only says something more about a good span."""
    return BeforeValidator(lambda value: value if type(value) is int and 0 <= value < most else instead)


Name = Annotated[str, BeforeValidator(_cut)]
Moment = Annotated[float, Field(ge=-MAX_MOMENT_S, le=MAX_MOMENT_S, strict=True, allow_inf_nan=False)]
Rank = Annotated[int, Field(ge=0, lt=MAX_RANK, strict=True)]


class _Span(Foreign):
    rank: Rank
    name: Name
    start_s: Moment
    end_s: Moment
    kind: Annotated[str, Field(max_length=20)] = "collective"
    clock: Name = "monotonic"
    size_bytes: Annotated[int, _whole(MAX_BYTES, 0)] = 0
    step: Annotated[int, _whole(MAX_RANK, -1)] = -1
    peer: Annotated[int, _whole(MAX_RANK, -1)] = -1
    group: Name = ""
    codec: Name = ""


class _Mark(Foreign):
    phase: JobPhase
    rank: Rank
    at_s: Moment
    clock: Literal["monotonic", "wall"] = "monotonic"


_ONE: TypeAdapter[_Mark | _Span] = TypeAdapter(_Mark | _Span)


def event_of(data: object, clock: Clock, now_s: float | None = None) -> SpanEvent | PhaseEvent | None:
    """Return the span or phase in a JSON object, or None if it is not one.

    Times are seconds: monotonic as `start_s` and `end_s`, or Unix times when `"clock": "wall"` stands with them.
    """
    try:
        record = _ONE.validate_python(data)
    except (ValidationError, RecursionError):
        return None
    latest_s = (clock.now().mono_s if now_s is None else now_s) + AHEAD_S
    if isinstance(record, _Mark):
        at_s = clock.from_wall(record.at_s) if record.clock == "wall" else record.at_s
        return PhaseEvent(record.rank, record.phase, at_s) if at_s <= latest_s else None
    kind = _KINDS.get(record.kind.lower())
    start_s, end_s = record.start_s, record.end_s
    if record.clock == "wall":
        start_s, end_s = clock.from_wall(start_s), clock.from_wall(end_s)
    if kind is None or end_s < start_s or end_s > latest_s:
        return None
    extra = (record.size_bytes, record.step, record.peer, record.group, record.codec)
    return SpanEvent(record.rank, kind, record.name, start_s, end_s, *extra)
