"""Profiler traces of steps on the CPU: outermost calls of the main threads, and gloo's collectives on its own threads.

A collective waits for the call that launched it. A call that starts after its thread was idle waits for the collective
that ended in the meantime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypedDict

from syncline.workload.graph import GraphBuilder, Op
from syncline.workload.traces.execution_trace import GROWING, WIDTHS, add_transfer, word_of

GLOO = "gloo:"


class TraceEvent(TypedDict, total=False):
    """One event of a profiler trace, in the format of Chrome's tracing; times in microseconds."""

    name: str
    cat: str
    ph: str
    ts: float
    dur: float
    pid: object
    tid: object
    args: Mapping[str, Any]


def is_host_event(event: Any) -> bool:
    """Say whether an event is a call on the CPU or a collective of gloo."""
    if not isinstance(event, dict) or event.get("ph") != "X" or not isinstance(event.get("ts"), (int, float)):
        return False
    return event.get("cat") == "cpu_op" or (
        event.get("cat") == "user_annotation" and str(event.get("name", "")).startswith(GLOO)
    )


def add_host_rank(builder: GraphBuilder, rank: int, events: list[TraceEvent], ranks: int) -> None:
    """Add one rank's calls and collectives."""
    collectives = [event for event in events if str(event["name"]).startswith(GLOO)]
    gloo_threads = {event.get("tid") for event in collectives}
    calls = _outermost([event for event in events if event.get("tid") not in gloo_threads])
    launches = [event for event in events if str(event["name"]).startswith("c10d::") and word_of(str(event["name"]))]
    streams = {tid: i for i, tid in enumerate(dict.fromkeys(event.get("tid") for event in calls))}
    place: list[tuple[TraceEvent, int]] = []
    ended: list[tuple[float, int]] = []
    busy_until: dict[int, float] = {}
    ordered = sorted([*calls, *collectives], key=lambda event: float(event["ts"]))
    for event in ordered:
        start, length = float(event["ts"]), max(float(event.get("dur") or 0.0), 0.0)
        if event in collectives:
            word = word_of(str(event["name"]))
            size = _input_bytes(event.get("args")) * (ranks if word in GROWING else 1)
            op = add_transfer(
                builder, rank, word, str(event["name"]), stream=len(streams), size_bytes=size, ranks=ranks,
                duration_s=length / 1e6, deps=_launcher(event, launches, place),
            )  # fmt: skip
            ended.append((start + length, op))
            continue
        stream = streams[event.get("tid")]
        since = busy_until.get(stream, -math.inf)
        waited = [number for end, number in ended if since <= end <= start]
        op = builder.add(
            rank, Op.COMPUTE, str(event["name"])[:120], stream=stream, duration_s=length / 1e6, deps=tuple(waited)
        )
        busy_until[stream] = start + length
        place.append((event, op))


def _outermost(events: list[TraceEvent]) -> list[TraceEvent]:
    """Return the calls that are in no other call of their thread; those that only launch a collective are left out."""
    found: list[TraceEvent] = []
    until: dict[Any, float] = {}
    for event in sorted(events, key=lambda e: (float(e["ts"]), -float(e.get("dur") or 0.0))):
        start = float(event["ts"])
        if start < until.get(event.get("tid"), -math.inf):
            continue
        until[event.get("tid")] = start + float(event.get("dur") or 0.0)
        if not str(event["name"]).startswith("c10d::"):
            found.append(event)
    return found


def _launcher(
    event: Mapping[str, Any], launches: list[TraceEvent], place: list[tuple[TraceEvent, int]]
) -> tuple[int, ...]:
    """Return the call in or before which the collective was launched: its last launch of that kind before it ran."""
    word, start = word_of(str(event["name"])), float(event["ts"])
    before = [one for one in launches if word_of(str(one["name"])) == word and float(one["ts"]) <= start]
    if not before:
        return ()
    launch = max(before, key=lambda one: float(one["ts"]))
    calls = [op for call, op in place if call.get("tid") == launch["tid"] and float(call["ts"]) <= float(launch["ts"])]
    return (calls[-1],) if calls else ()


def _input_bytes(args: Any) -> float:
    """Return the bytes of a call's inputs, which a trace has with `record_shapes=True`; 0 without."""
    if not isinstance(args, dict):
        return 0.0
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0.0
    total = 0.0
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
            total += math.prod(shape) * WIDTHS.get(str(kind).lower(), 4)
    return total
