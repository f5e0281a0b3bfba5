"""A Capture: what one rank of a script did in a warm-up and two steps, as the child process wrote it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import DescriptionError, UsageError

STEPS = 3  # a warm-up and two
FEWER = 2  # of ranks beside the first, whose two steps are alike: a warm-up and one, which is repeated


class CapturedOp(NamedTuple):
    """One operation as the host launched it."""

    kind: str  # kernel, collective, send, recv, sync
    stream: int
    signature: int
    module: int  # index into words
    line: int
    phase: str
    waits: list[int]
    extra: object


class KernelCall(NamedTuple):
    """What an operator was called with; equal calls share one."""

    name: str
    flops: int
    ins: tuple[tuple[tuple[int, ...], str, int], ...]  # shape, dtype, elements in memory
    outs: tuple[tuple[tuple[int, ...], str, int], ...]
    args: list[object]
    kwargs: dict[str, Any]
    tf32: bool
    on_host: bool
    mutable: bool
    namespace: str


class GpuStorage(NamedTuple):
    """One storage on the GPU."""

    size_bytes: int
    op: int
    module: int
    line: int
    label: str


@dataclass(frozen=True, eq=False)
class Capture:
    """One rank's run."""

    rank: int
    world: int
    ops: tuple[CapturedOp, ...] = field(repr=False)
    kernels: tuple[KernelCall, ...] = field(repr=False)
    words: tuple[str, ...] = field(repr=False)
    streams: dict[int, str] = field(repr=False)
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    allocations: tuple[GpuStorage, ...] = field(repr=False)
    memory: tuple[tuple[int, int, int], ...] = field(repr=False)  # operation, allocation, bytes
    boundaries: tuple[int, ...] = ()
    stand_ins: tuple[tuple[str, str, str, int], ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Return first and last operation of each step."""
        edges = self.boundaries or (0,)
        if len(self.boundaries) <= self.facts.get("steps", STEPS):  # else the last one ends a step already
            edges = (*edges, len(self.ops))
        return tuple((a, b) for a, b in itertools.pairwise(edges) if b > a)

    @cached_property
    def steady(self) -> tuple[tuple[int, int], ...]:
        """Return the steps after the warm-up, or the only one."""
        return self.steps[1:] or self.steps

    @cached_property
    def laid(self) -> tuple[tuple[int, int], ...]:
        """Return the two steps that a graph is made of: the only one twice, where it stands for both."""
        return self.steady * (STEPS - 1) if self.facts.get("steps") == FEWER and len(self.steps) > 1 else self.steady

    @property
    def on_cpu(self) -> bool:
        """Whether the script computes on its hosts' processors."""
        return self.facts.get("device") == "cpu"

    @property
    def peers(self) -> tuple[int, ...]:
        """Return the ranks that this one sends to or receives from."""
        found = {op.extra[3] for op in self.ops if op.kind in ("send", "recv") and isinstance(op.extra, list)}
        return tuple(sorted(found))


def read_capture(path: Path) -> Capture:
    """Return the capture of a file that the child process wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["syncline"] != "capture 1":
            raise KeyError("syncline")
        return _capture(data)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise DescriptionError("is not a capture that syncline wrote.", where=str(path)) from None


def read_captures(folder: Path, world: int) -> tuple[Capture, ...]:
    """Return what an earlier preview kept of the same command."""
    found = tuple(sorted((read_capture(path) for path in folder.glob("rank*.json")), key=lambda c: c.rank))
    if not found or found[0].world != world:
        raise UsageError(
            f"{folder} holds no capture of {world:,} ranks.", hint="Make one with `keep`, of the same command."
        )
    return found


def steps_alike(capture: Capture) -> bool:
    """Return whether the two steps after the warm-up are the same."""
    if len(capture.steady) != STEPS - 1:
        return False
    (first, last), (begin, end) = capture.steady
    return [_behaviour(op, first) for op in capture.ops[first:last]] == [
        _behaviour(op, begin) for op in capture.ops[begin:end]
    ]


def _behaviour(op: CapturedOp, first: int) -> tuple[object, ...]:
    """Return what an operation does, with what it waits for as a distance."""
    moved = op.extra if op.kind in ("collective", "send", "recv") else None
    return (*op[:6], [wait - first for wait in op.waits if wait >= first], moved)


def _capture(data: Mapping[str, Any]) -> Capture:
    return Capture(
        rank=data["facts"]["rank"],
        world=data["facts"]["world"],
        ops=tuple(CapturedOp(*row) for row in data["ops"]),
        kernels=tuple(_kernel(spec) for spec in data["signatures"]),
        words=tuple(data["words"]),
        streams={int(k): v for k, v in data["streams"].items()},
        groups=tuple(tuple(g) for g in data["groups"]),
        allocations=tuple(GpuStorage(*row) for row in data["allocs"]),
        memory=tuple((a, b, c) for a, b, c in data["memory"]),
        boundaries=tuple(data["boundaries"]),
        stand_ins=tuple((a, b, c, d) for a, b, c, d in data["stand_ins"]),
        notes=tuple(data["notes"]),
        facts=data["facts"],
    )


def _kernel(spec: Mapping[str, Any]) -> KernelCall:
    ins, outs = (tuple((tuple(s), t, e) for s, t, e in spec[key]) for key in ("ins", "outs"))
    rest = (spec[key] for key in ("args", "kwargs", "tf32", "host", "mutable", "namespace"))
    return KernelCall(spec["op"], spec["flops"], ins, outs, *rest)
