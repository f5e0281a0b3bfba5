"""Blocking calls and other stalls of the host while its device is idle, with their Python lines where recorded."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from syncline.describe.model import Handle, handle
from syncline.timeline.account import StepCause
from syncline.timeline.account.sweep import covered
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.intervals import Intervals
from syncline.timeline.recording.recording import Bools, Calling, HostCalls, Recording

Label = tuple[StepCause, str]
LEAST_STALL_S = 1e-4
"""An idle moment of the device that is worth a name: longer than launching any kernel takes."""
MOST_STALLS = 200
"""The longest idle moments are named; the shorter ones have the same causes."""
_LIBRARY = re.compile(r"site-packages|dist-packages|torch/|<built-in|<frozen|lib/python|importlib|^nn\.Module")
_FRAME = re.compile(r"^(?P<file>[^()]+)\((?P<line>\d+)\): (?P<function>.*)$")


@dataclass(frozen=True)
class Stall:
    """Moments in which the device was idle for one reason: what the host did, where, how often and how long."""

    what: str
    where: str
    times: int
    seconds: float
    moments_s: Handle[tuple[tuple[float, float], ...]] = handle()


def labels_of(
    recording: Recording, gaps: Intervals, drained: Bools, blocks: HostCalls, working: Intervals
) -> dict[Label, Intervals]:
    """Return idle moments that a blocking call left, by call: until the host has launched work again."""
    if not drained.any() or not len(blocks):
        return {}
    order = np.argsort(blocks.start_s, kind="stable")
    found: dict[str, list[int]] = defaultdict(list)
    call_of: dict[int, str] = {}
    for gap in np.flatnonzero(drained).tolist():
        at = int(np.searchsorted(blocks.start_s[order], gaps.start_s[gap], side="right")) - 1
        row = int(order[max(at, 0)])
        if row not in call_of:
            call_of[row] = _call_words(recording, blocks, row)
        found[call_of[row]].append(gap)
    sums = {name: float((gaps.end_s[rows] - gaps.start_s[rows]).sum()) for name, rows in found.items()}
    named = sorted(sums, key=lambda name: -sums[name])[:4]
    layers: dict[Label, Intervals] = {}
    for name in named:
        rows = np.array(found[name])
        layers[StepCause.HOST, f"after {name}"] = _meeting(gaps, rows, blocks, working)
    rest = [gap for name, rows in found.items() if name not in named for gap in rows]
    if rest:
        layers[StepCause.HOST, "after other blocking calls"] = _meeting(gaps, np.array(rest), blocks, working)
    return layers


def _meeting(gaps: Intervals, rows: Ints, blocks: HostCalls, working: Intervals) -> Intervals:
    """Return of some gaps what the host spends blocked or launching."""
    starts = np.concatenate([blocks.start_s, working.start_s])
    ends = np.concatenate([blocks.end_s, working.end_s])
    busy = covered(starts, ends)
    begin, end = gaps.start_s[rows], gaps.end_s[rows]
    first = np.searchsorted(busy.end_s, begin, side="right")
    last = np.searchsorted(busy.start_s, end, side="left")
    found = [(max(a, float(busy.start_s[i])), min(b, float(busy.end_s[i])))
             for a, b, i0, i1 in zip(begin.tolist(), end.tolist(), first.tolist(), last.tolist(), strict=True)
             for i in range(i0, i1)]  # fmt: skip
    table = np.array(found, np.float64).reshape(len(found), 2)
    return covered(table[:, 0], table[:, 1])


def _call_words(recording: Recording, blocks: HostCalls, row: int) -> str:
    """Return a blocking call as its operator, and its Python line where it was recorded."""
    moment, thread = float(blocks.start_s[row]), int(blocks.thread[row])
    operator = _around(recording, moment, thread, Calling.OPERATOR, outermost=True)
    name = recording.names[operator] if operator is not None else recording.names[int(blocks.name[row])]
    line = python_line(recording, moment, thread)
    return f"{name}{f' ({line})' if line else ''}"


def _around(recording: Recording, moment: float, thread: int, calling: Calling, *, outermost: bool) -> int | None:
    """Return the name of the call of a kind that a thread is in at a moment."""
    host = recording.host
    upto = int(np.searchsorted(host.start_s, moment, side="right"))
    chosen = np.flatnonzero(
        (host.calling[:upto] == calling) & (host.thread[:upto] == thread) & (host.end_s[:upto] >= moment)
    )
    if not len(chosen):
        return None
    return int(host.name[chosen[0 if outermost else -1]])


def python_line(recording: Recording, moment: float, thread: int) -> str:
    """Return the innermost line of the user's own code at a moment; "" where no stacks were recorded."""
    host = recording.host
    upto = int(np.searchsorted(host.start_s, moment, side="right"))
    chosen = np.flatnonzero(
        (host.calling[:upto] == Calling.PYTHON) & (host.thread[:upto] == thread) & (host.end_s[:upto] >= moment)
    )
    frames = [recording.names[int(name)] for name in host.name[chosen].tolist()]
    own = [frame for frame in frames if not _LIBRARY.search(frame) and _FRAME.match(frame)]
    if not own:
        return ""
    parts = _FRAME.match(own[-1])
    assert parts is not None
    return f"{parts['file'].rsplit('/', 1)[-1]}:{parts['line']} {parts['function']}"


def named_stalls(recording: Recording, gaps: Intervals, queued: Bools, mine: Bools) -> tuple[Stall, ...]:
    """Return the idle moments of the device worth a name, by what the host did in most of each."""
    host = recording.host
    length = gaps.end_s - gaps.start_s
    rows = np.flatnonzero(~queued & (length >= LEAST_STALL_S))
    rows = rows[np.argsort(-length[rows], kind="stable")[:MOST_STALLS]]
    threads = np.unique(host.thread[mine])
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for gap in rows.tolist():
        begin, end = float(gaps.start_s[gap]), float(gaps.end_s[gap])
        what, thread, moment = _main_call(recording, begin, end, threads)
        found[what, python_line(recording, moment, thread)].append((begin, end))
    stalls = [
        Stall(what, where, len(spent), sum(end - begin for begin, end in spent), moments_s=tuple(spent))
        for (what, where), spent in found.items()
    ]
    return tuple(sorted(stalls, key=lambda stall: -stall.seconds))


def _main_call(recording: Recording, begin: float, end: float, threads: Ints) -> tuple[str, int, float]:
    """Return what the host did for most of an idle moment, on which thread, and a moment inside it."""
    host = recording.host
    upto = int(np.searchsorted(host.start_s, end, side="left"))
    near = np.flatnonzero(
        (host.end_s[:upto] > begin) & np.isin(host.thread[:upto], threads) & (host.calling[:upto] != Calling.PYTHON)
    )
    spans: Floats = np.minimum(host.end_s[near], end) - np.maximum(host.start_s[near], begin)
    thread = int(host.thread[near[0]]) if len(near) else int(threads[0])
    if len(near):
        best = _priority(host.calling[near], spans, end - begin)
        if best is not None:
            row = near[best]
            moment = max(begin, float(host.start_s[row])) + float(spans[best]) / 2
            return recording.names[int(host.name[row])], int(host.thread[row]), moment
    launches = near[np.isin(host.calling[near], (Calling.OPERATOR, Calling.LAUNCH))]
    if len(launches) > 3 and float(_union_s(host, launches, begin, end)) > (end - begin) / 2:
        return "launching kernels", thread, (begin + end) / 2
    return "Python outside operators", thread, (begin + end) / 2


def _priority(calling: Ints, spans: Floats, whole: float) -> int | None:
    """Return the call that takes most of an idle moment: a loader, a blocking call, or one operator."""
    for kind in (Calling.INPUT, Calling.BLOCK, Calling.OPERATOR, Calling.LAUNCH):
        mine = np.flatnonzero(calling == kind)
        if len(mine) and float(spans[mine].max()) > whole / 2:
            return int(mine[spans[mine].argmax()])
    return None


def _union_s(host: HostCalls, rows: Ints, begin: float, end: float) -> float:
    parts = covered(np.maximum(host.start_s[rows], begin), np.minimum(host.end_s[rows], end))
    return float((parts.end_s - parts.start_s).sum())
