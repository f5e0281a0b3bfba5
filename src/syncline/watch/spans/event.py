"""A span as it comes in while a job runs, read from a JSON object without trusting any of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from syncline.timeline import SpanKind
from syncline.watch.clock import Clock

MAX_NAME = 80
MAX_RANK = 1 << 20
_KINDS = {kind.name.lower(): kind for kind in SpanKind}


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

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class SpanSource(Protocol):
    """One origin of spans. `read` gives what is new since the last call and never raises; `num_bad` counts refusals."""

    name: str
    problem: str
    num_bad: int

    def read(self) -> list[SpanEvent]: ...

    def close(self) -> None: ...


def event_of(data: object, clock: Clock) -> SpanEvent | None:
    """Return the span in a JSON object, or None if it is not one.

    Times are seconds: monotonic as `start_s` and `end_s`, or Unix times when `"clock": "wall"` stands with them.
    """
    if not isinstance(data, Mapping):
        return None
    start_s, end_s = _number(data, "start_s"), _number(data, "end_s")
    rank, name = _whole(data, "rank"), data.get("name")
    kind = _KINDS.get(str(data.get("kind", "collective")).lower())
    if start_s is None or end_s is None or end_s < start_s or kind is None or not isinstance(name, str):
        return None
    if rank is None or not 0 <= rank < MAX_RANK:
        return None
    if data.get("clock") == "wall":
        start_s, end_s = clock.from_wall(start_s), clock.from_wall(end_s)
    size, step, peer = (_whole(data, key) for key in ("size_bytes", "step", "peer"))
    return SpanEvent(
        rank,
        kind,
        name[:MAX_NAME],
        start_s,
        end_s,
        max(0, size or 0),
        -1 if step is None else max(-1, step),
        -1 if peer is None or peer >= MAX_RANK else max(-1, peer),
    )


def _number(data: Mapping[str, Any], key: str) -> float | None:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _whole(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None
