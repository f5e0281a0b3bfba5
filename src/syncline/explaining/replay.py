"""One step of one rank run again, with something changed: host, streams and blocking calls in their recorded order.

A launch follows the launch before it after the host's own time in between; an activity of the device follows its
launch, its stream, and the other stream's activity that it was seen to wait for; a call that returns when an activity
ends waits for it. What of a start nothing of that explains stays as a lag, so that the unchanged replay is the
recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.explaining.attribution import StepAttribution
from syncline.explaining.steps import step_of
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.recording.recording import Bools, Calling, Doing

RETURNS_S = 5e-5
"""A call that returns within this time of an activity's end waited for it."""
LEAST_BLOCK_S = 1e-5
"""A shorter call launches, it does not wait."""
RECORDING_S = 1.7e-6
"""Of the host for each operator and launch that a profiler records with shapes and stacks: on an H200's host 0.9 us
where kernels are launched in a row, 2.4 us where Python calls modules."""


@dataclass(frozen=True, eq=False)
class ReplayGraph:
    """Device activities of a step in order of launch. Row i waits for its launch, `before` (its stream) and `other`.

    Between launch i - 1 and launch i the host works for `until_s`, waits for activity `blocks` (-1: for none), is back
    after `back_s`, and works for `work_s`.
    """

    row: Ints
    """Of the recording."""
    length_s: Floats
    lag_s: Floats
    before: Ints
    other: Ints
    until_s: Floats
    blocks: Ints
    back_s: Floats
    work_s: Floats
    input_s: Floats
    """Of the host's work, waiting for the data loader."""
    blocking_s: Floats
    """Of the time between launches, all of the operators that wait for the device."""
    gap_s: Floats
    """Between launches, waiting for the device included."""
    recording_s: Floats
    """Of the gap, what the profiler itself took."""
    offset_s: float
    """Where the host is when the step begins: below 0 where it is ahead of its device."""
    tail_s: float = 0.0
    """From the last end to the step's end."""

    def step_s(self) -> float:
        """Return the length of the step."""
        host, latest = self.offset_s, 0.0
        end = [0.0] * len(self.row)
        columns = (
            self.length_s,
            self.lag_s,
            self.before,
            self.other,
            self.until_s,
            self.blocks,
            self.back_s,
            self.work_s,
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for i, (length, lag, before, other, until, blocks, back, work) in enumerate(rows):
            host += until
            if blocks >= 0:
                host = max(host, end[blocks]) + back
            host += work
            at = max(host, 0.0)
            if before >= 0 and end[before] > at:
                at = end[before]
            if other >= 0 and end[other] > at:
                at = end[other]
            end[i] = at + lag + length
            if end[i] > latest:
                latest = end[i]
        return max(latest, host) + self.tail_s

    def with_lengths(self, length_s: Floats) -> ReplayGraph:
        """Return the graph with other times of its activities."""
        return replace(self, length_s=length_s)

    def changed(self, rows: Bools, factor: float) -> ReplayGraph:
        """Return the graph with some activities' times multiplied."""
        return self.with_lengths(np.where(rows, self.length_s * factor, self.length_s))

    def without_blocks(self) -> ReplayGraph:
        """Return the graph without the operators that wait for the device."""
        work = np.maximum(self.gap_s - self.blocking_s, 0.0)
        return replace(
            self, blocks=np.full(len(self.blocks), -1), back_s=np.zeros(len(self.back_s)), work_s=work,
            until_s=np.zeros(len(work)), input_s=np.minimum(self.input_s, work),
        )  # fmt: skip

    def without_work(self, launched_after: Ints, seconds: Floats) -> ReplayGraph:
        """Return the graph with some of the host's work before some launches gone."""
        gone = np.zeros(len(self.work_s))
        np.add.at(gone, launched_after, seconds)
        early = np.minimum(gone, self.work_s)
        return replace(self, work_s=self.work_s - early, until_s=np.maximum(self.until_s - (gone - early), 0.0))

    def unrecorded(self) -> ReplayGraph:
        """Return the graph as it would run without a profiler."""
        waits = self.blocks >= 0
        share = np.where(waits, self.blocking_s, 0.0) / np.where(self.gap_s > 0, self.gap_s, 1.0)
        free = self.without_work(np.arange(len(self.row)), self.recording_s)
        return replace(
            free, gap_s=np.maximum(self.gap_s - self.recording_s, 0.0),
            blocking_s=np.maximum(self.blocking_s - share * self.recording_s, 0.0),
            input_s=np.minimum(self.input_s, free.until_s + free.work_s),
        )  # fmt: skip

    def without_input(self) -> ReplayGraph:
        """Return the graph with input that is always there."""
        early = np.minimum(self.input_s, self.until_s)
        return replace(
            self, until_s=self.until_s - early, work_s=np.maximum(self.work_s - (self.input_s - early), 0.0),
            input_s=np.zeros(len(self.input_s)),
        )  # fmt: skip

    def without_host(self) -> ReplayGraph:
        """Return the graph with a host that launches in no time; input still comes when it comes."""
        free = self.without_blocks()
        return replace(
            free, until_s=np.zeros(len(self.until_s)), work_s=self.input_s, tail_s=0.0,
            lag_s=np.where((self.other >= 0) | (self.before < 0), self.lag_s, np.minimum(self.lag_s, 0.0)),
        )  # fmt: skip


def replay_graph(mine: StepAttribution, step: int) -> ReplayGraph | None:
    """Return a step to run again; None where the trace does not say what was launched when."""
    recording, windows = mine.recording, mine.windows
    device = recording.device
    if recording.steps:
        starts = np.array([mark.start_s for mark in recording.steps])
        chosen = np.flatnonzero(step_of(recording, starts) == step)
    else:
        chosen = np.arange(len(device))
    if not len(chosen) or (device.call[chosen] < 0).mean() > 0.5:
        return None
    launched = _launched(mine, chosen)
    order = np.lexsort((device.start_s[chosen], launched))
    rows, launched = chosen[order], launched[order]
    begin_s = float(windows.begin_s[step])
    start, end = device.start_s[rows], device.end_s[rows]
    before = _before(device.stream[rows])
    other = _other(start, end, device.stream[rows], launched, before)
    host = _host(mine, rows, launched, begin_s)
    ready = np.maximum(np.maximum(launched, begin_s), np.where(before >= 0, end[before], -np.inf))
    ready = np.maximum(ready, np.where(other >= 0, end[other], -np.inf))
    graph = ReplayGraph(
        rows, end - start, start - ready, before, other, *host,
        offset_s=min(float(launched[0]) - begin_s, 0.0),
    )  # fmt: skip
    return replace(graph, tail_s=float(windows.length_s[step]) - graph.step_s())


def _launched(mine: StepAttribution, rows: Ints) -> Floats:
    """Return when each activity was launched; what a trace has no launch of came with what ran before it.

    A stream keeps its order: what ran first was launched first, whatever clocks say.
    """
    device, host = mine.recording.device, mine.recording.host
    call = device.call[rows]
    through = _stayed(mine, rows)
    asked = np.where(through, host.start_s[np.maximum(call, 0)], host.end_s[np.maximum(call, 0)])
    moment = np.where(call >= 0, np.minimum(asked, device.start_s[rows]), np.nan)
    last = float(device.start_s[rows[0]])
    found = moment.tolist()
    for i, value in enumerate(found):
        last = found[i] = last if value != value else value
    moment = np.array(found)
    for stream in np.unique(device.stream[rows]).tolist():
        mine_too = np.flatnonzero(device.stream[rows] == stream)  # in order of start
        moment[mine_too] = np.minimum.accumulate(moment[mine_too][::-1])[::-1]
    return moment


def _stayed(mine: StepAttribution, rows: Ints) -> Bools:
    """Return which copies their own call stayed for, as it does for pageable memory; a launch stays for no kernel."""
    device, host = mine.recording.device, mine.recording.host
    call = np.maximum(device.call[rows], 0)
    if not len(host):
        return np.zeros(len(rows), bool)
    inside = (device.start_s[rows] >= host.start_s[call]) & (host.end_s[call] - host.start_s[call] > LEAST_BLOCK_S)
    copies = (device.call[rows] >= 0) & (device.doing[rows] == Doing.COPY)
    return np.asarray(copies & inside & (abs(host.end_s[call] - device.end_s[rows]) <= RETURNS_S))


def _before(stream: Ints) -> Ints:
    found = np.full(len(stream), -1, np.int64)
    last: dict[int, int] = {}
    for i, one in enumerate(stream.tolist()):
        found[i] = last.get(one, -1)
        last[one] = i
    return found


def _other(start: Floats, end: Floats, stream: Ints, launched: Floats, before: Ints) -> Ints:
    """Return the other stream's activity that let one start: the last to end before it, if nothing else explains it."""
    found = np.full(len(start), -1, np.int64)
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    own = np.maximum(launched, np.where(before >= 0, end[before], -np.inf))
    for i in np.flatnonzero(start > own).tolist():
        at = int(np.searchsorted(ends, start[i] + 5e-7, side="right")) - 1
        while at >= 0 and ends[at] > own[i]:
            j = int(by_end[at])
            if stream[j] != stream[i] and j < i:
                found[i] = j
                break
            at -= 1
    return found


def _host(
    mine: StepAttribution, rows: Ints, launched: Floats, begin_s: float
) -> tuple[Floats, Ints, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Return what the host does before each launch, in the order of the graph's columns."""
    recording = mine.recording
    host, device = recording.host, recording.device
    calls = device.call[rows]
    threads = np.unique(host.thread[calls[calls >= 0]])
    near = (
        np.isin(host.thread, threads) & (host.end_s > min(begin_s, float(launched[0]))) & (host.start_s < launched[-1])
    )
    earlier = np.concatenate([[min(begin_s, float(launched[0]))], launched[:-1]])
    gap = launched - earlier
    inputs = np.minimum(
        _within(host.start_s, host.end_s, near & (host.calling == Calling.INPUT), earlier, launched), gap
    )
    until, blocks, back, work = np.zeros(len(gap)), np.full(len(gap), -1, np.int64), np.zeros(len(gap)), gap.copy()
    ends = device.end_s[rows]
    by_end = np.argsort(ends, kind="stable")
    runtime = (
        near & np.isin(host.calling, (Calling.LAUNCH, Calling.BLOCK)) & (host.end_s - host.start_s > LEAST_BLOCK_S)
    )
    own = {int(calls[place]): int(place) for place in np.flatnonzero(_stayed(mine, rows))}
    for call in np.flatnonzero(runtime).tolist():
        a, b = float(host.start_s[call]), float(host.end_s[call])
        i = int(np.searchsorted(launched, b, side="left"))  # the first launch after the call
        place = own.get(call, -1)
        if 0 <= place < i < len(gap):
            blocks[i], back[i], until[i] = place, b - float(ends[place]), max(a - float(earlier[i]), 0.0)
            work[i] = max(float(launched[i]) - b, 0.0)
            continue
        at = int(np.searchsorted(ends[by_end], b, side="right")) - 1
        while at >= 0 and by_end[at] >= i:
            at -= 1
        if not 0 < i < len(gap) or at < 0:
            continue
        done = float(ends[by_end[at]])
        if done <= a or b - done > RETURNS_S:
            continue
        blocks[i], back[i] = by_end[at], b - done
        until[i] = max(a - earlier[i], 0.0)
        work[i] = max(float(launched[i]) - b, 0.0)
    blocking = _blocking_operators(mine, np.flatnonzero(near & (host.calling == Calling.BLOCK)))
    inside = np.minimum(_within(*blocking, np.ones(len(blocking[0]), bool), earlier, launched), gap)
    seen = np.sort(host.start_s[near & (host.calling != Calling.PYTHON)])
    events = np.searchsorted(seen, launched) - np.searchsorted(seen, earlier)
    return until, blocks, back, work, inputs, inside, gap, np.minimum(RECORDING_S * events, gap)


def _blocking_operators(mine: StepAttribution, calls: Ints) -> tuple[Floats, Floats]:
    """Return begin and end of the outermost operators that blocking calls are in; of the calls that are in none.

    Operators just before them that launch nothing make the view that is read, and go with them.
    """
    host = mine.recording.host
    operators = np.flatnonzero(host.calling == Calling.OPERATOR)
    launches = np.flatnonzero(host.calling == Calling.LAUNCH)
    found: dict[float, float] = {}
    for thread in np.unique(host.thread[calls]).tolist():
        own = operators[host.thread[operators] == thread]
        reach = np.maximum.accumulate(np.concatenate([[-np.inf], host.end_s[own]]))[:-1]
        outer = own[host.start_s[own] >= reach] if len(own) else own
        asked = host.start_s[launches[host.thread[launches] == thread]]
        for call in calls[host.thread[calls] == thread].tolist():
            at = int(np.searchsorted(host.start_s[outer], host.start_s[call], side="right")) - 1
            holds = at >= 0 and host.end_s[outer[at]] >= host.end_s[call]
            row = int(outer[at]) if holds else call
            last = int(np.searchsorted(asked, host.start_s[row])) - 1
            view = int(np.searchsorted(host.start_s[outer], asked[last], side="right")) if last >= 0 else 0
            begins = np.minimum(host.start_s[row], host.start_s[outer[view : view + 1]].min(initial=np.inf))
            found[float(begins)] = float(host.end_s[row])
    return np.array(sorted(found)), np.array([found[begin] for begin in sorted(found)])


def _within(start: Floats, end: Floats, chosen: Bools, begin: Floats, until: Floats) -> Floats:
    """Return how much of some calls lies in each stretch."""
    found = np.zeros(len(begin))
    for a, b in zip(start[chosen].tolist(), end[chosen].tolist(), strict=True):
        i = int(np.searchsorted(until, a, side="right"))
        while i < len(begin) and begin[i] < b:
            found[i] += max(min(b, float(until[i])) - max(a, float(begin[i])), 0.0)
            i += 1
    return found


def collective_rows(mine: StepAttribution, graph: ReplayGraph) -> Bools:
    """Return which activities of a replay are collectives."""
    return np.asarray(mine.recording.device.doing[graph.row] == Doing.COLLECTIVE)
