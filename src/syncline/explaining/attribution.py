"""A recording as accounts: each moment of each step has one cause.

The device's own work counts first. Where the device is idle, the cause is what the host did until it launched what came
next; where that was launched already, the device itself left the gap.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from syncline.explaining.blocking import Stall, labels_of, named_stalls
from syncline.explaining.matching import Matches, call_of
from syncline.explaining.steps import StepWindows
from syncline.timeline.account import Account, StepCause, account_of
from syncline.timeline.account.sweep import covered, overlap, remainder, sweep
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.intervals import Intervals
from syncline.timeline.recording.kernel_kind import LINES, kind_of, optimizes
from syncline.timeline.recording.recording import Bools, Calling, Doing, Recording

Label = tuple[StepCause, str]
QUEUED = (StepCause.IDLE, "between kernels that were already queued")
INPUT = (StepCause.INPUT, "data loader")
LAUNCHING = (StepCause.HOST, "launching kernels")
PYTHON = (StepCause.HOST, "Python between operators")
WORLD = ("", "default_pg", "0")
"""Names of the group of all ranks."""
UNKNOWN = (StepCause.IDLE, "nothing recorded")


@dataclass(frozen=True, eq=False)
class StepAttribution:
    """One rank's steps: seconds by label and step, and the idle moments of the device with their causes."""

    recording: Recording
    windows: StepWindows
    labels: tuple[Label, ...]
    seconds: Floats
    """Labels x steps."""
    hidden: Floats
    stalls: tuple[Stall, ...]

    def account(self, step: int) -> Account:
        """Return the account of one step."""
        parts = {label: float(self.seconds[i, step]) for i, label in enumerate(self.labels)}
        hidden = {label: float(self.hidden[i, step]) for i, label in enumerate(self.labels)}
        took = float(self.windows.length_s[step])
        return account_of("measured", took, parts, name=f"step {self.windows.names[step]}", hidden=hidden)

    @cached_property
    def total(self) -> Account:
        """The account of all recorded steps together."""
        parts = {label: float(self.seconds[i].sum()) for i, label in enumerate(self.labels)}
        return account_of("measured", float(self.windows.length_s.sum()), parts, name="all recorded steps")


def attribute(recording: Recording, windows: StepWindows, transfer_s: Floats) -> StepAttribution:
    """Return the accounts of a recording's steps; `transfer_s` is a collective's own time where ranks were matched."""
    begin, end = windows.begin_s, windows.end_s
    device = _device_layers(recording, transfer_s)
    layers = dict(device)
    gaps = remainder(list(device.values()), float(begin[0]), float(end[-1]))
    idle, stalls = _idle_layers(recording, gaps)
    for label, part in idle.items():
        layers[label] = _joined(layers[label], part) if label in layers else part
    ordered = sorted(layers, key=lambda label: list(StepCause).index(label[0])) if not idle else [*device, *idle]
    ordered = list(dict.fromkeys(ordered))
    bare = sweep([layers[label] for label in ordered])
    seconds = np.array([overlap(part, begin, end) for part in bare]).reshape(len(ordered), len(windows))
    whole = np.array([overlap(layers[label], begin, end) for label in ordered]).reshape(seconds.shape)
    rest = windows.length_s - seconds.sum(axis=0)
    labels = (*ordered, UNKNOWN)
    return StepAttribution(
        recording, windows, labels, np.vstack([seconds, np.maximum(rest, 0.0)]),
        np.vstack([np.maximum(whole - seconds, 0.0), np.zeros(len(windows))]), stalls,
    )  # fmt: skip


def _joined(one: Intervals, other: Intervals) -> Intervals:
    return covered(np.concatenate([one.start_s, other.start_s]), np.concatenate([one.end_s, other.end_s]))


def _device_layers(recording: Recording, transfer_s: Floats) -> dict[Label, Intervals]:
    """Return what the device did, in the order in which it counts: kernels, copies, communication, waiting in it."""
    device = recording.device
    labels: dict[Label, Bools] = {}
    kinds = np.array([_kind(name) for name in recording.names] or [""])[device.name] if len(device) else np.empty(0)
    for kind, words in LINES.items():
        mine = (device.doing == Doing.COMPUTE) & (kinds == kind)
        if mine.any():
            labels[StepCause.KERNELS, words] = mine
    if (device.doing == Doing.COPY).any():
        labels[StepCause.COPIES, "copies and fills"] = device.doing == Doing.COPY
    found = {label: covered(device.start_s[mine], device.end_s[mine]) for label, mine in labels.items()}
    moved, waited = _communication(recording, transfer_s)
    return {**found, **moved, **waited}


def _kind(name: str) -> str:
    return "optimizer" if optimizes(name) else kind_of(name)


def _communication(recording: Recording, transfer_s: Floats) -> tuple[dict[Label, Intervals], dict[Label, Intervals]]:
    """Return the collectives' own time by operation and group, and before it what was waited in them."""
    device = recording.device
    moved: dict[Label, list[tuple[float, float]]] = defaultdict(list)
    waited: dict[Label, list[tuple[float, float]]] = defaultdict(list)
    fastest = fastest_sends(recording)
    for row in np.flatnonzero(device.doing == Doing.COLLECTIVE).tolist():
        call = call_of(recording, row)
        begin, end = float(device.start_s[row]), float(device.end_s[row])
        own = transfer_s[row]
        what = f"{call.operation}{f' ({call.group})' if call.group not in WORLD else ''}"
        late: Label = (StepCause.LATE, what)
        if call.operation == "send-receive":
            own, late = fastest[call.size_bytes], (StepCause.STAGE, what)
        from_s = begin if np.isnan(own) else max(begin, end - own)
        moved[StepCause.NETWORK, what].append((from_s, end))
        if from_s > begin:
            waited[late].append((begin, from_s))
    return {key: _spans(rows) for key, rows in moved.items()}, {key: _spans(rows) for key, rows in waited.items()}


def fastest_sends(recording: Recording) -> dict[float, float]:
    """Return by size the shortest time of a send or receive: what is longer waited for the peer."""
    device = recording.device
    found: dict[float, float] = {}
    for row in np.flatnonzero(device.doing == Doing.COLLECTIVE).tolist():
        call = call_of(recording, row)
        if call.operation == "send-receive":
            took = float(device.end_s[row] - device.start_s[row])
            found[call.size_bytes] = min(took, found.get(call.size_bytes, took))
    return found


def _spans(rows: list[tuple[float, float]]) -> Intervals:
    table = np.array(rows, np.float64).reshape(len(rows), 2)
    return covered(table[:, 0], table[:, 1])


def _idle_layers(recording: Recording, gaps: Intervals) -> tuple[dict[Label, Intervals], tuple[Stall, ...]]:
    """Return why the device was idle, in the order in which it counts, and the stalls that have a name."""
    host, device = recording.host, recording.device
    if not len(host) or not len(gaps):
        return {}, ()
    launched = _next_launch(recording, gaps)
    queued = launched <= gaps.start_s
    layers: dict[Label, Intervals] = {}
    if (device.call >= 0).any():
        layers[QUEUED] = _rows(gaps, queued)
    mine = _launching_threads(recording)
    inputs, blocks = (
        host.take(mine & (host.calling == Calling.INPUT)),
        host.take(mine & (host.calling == Calling.BLOCK)),
    )
    layers[INPUT] = covered(inputs.start_s, inputs.end_s)
    drained = _inside(blocks.start_s, blocks.end_s, gaps.start_s) & ~queued
    busy = mine & np.isin(host.calling, (Calling.OPERATOR, Calling.LAUNCH))
    working = covered(host.start_s[busy], host.end_s[busy])
    late = ~queued & (launched < gaps.end_s)
    latency = covered(launched[late], gaps.end_s[late])
    layers |= labels_of(recording, gaps, drained, blocks, working)
    layers[LAUNCHING] = _joined(working, latency)
    if (host.calling == Calling.OPERATOR).any():
        layers[PYTHON] = gaps
    return layers, named_stalls(recording, gaps, queued, mine)


def _rows(parts: Intervals, chosen: Bools) -> Intervals:
    return Intervals(parts.group[chosen], parts.start_s[chosen], parts.end_s[chosen])


def _next_launch(recording: Recording, gaps: Intervals) -> Floats:
    """Return when the host had launched what the device does after each gap; infinity where nothing follows."""
    device, host = recording.device, recording.host
    row: Ints = np.searchsorted(device.start_s, gaps.end_s - 1e-12, side="left")
    known = row < len(device)
    call = np.where(known, device.call[np.minimum(row, max(len(device) - 1, 0))], -1) if len(device) else row * 0 - 1
    return np.where(call >= 0, host.end_s[np.maximum(call, 0)], np.inf)


def _launching_threads(recording: Recording) -> Bools:
    """Return the rows of threads that launch work on the device; of all threads where nothing is launched."""
    host, device = recording.host, recording.device
    calls = device.call[device.call >= 0]
    if not len(calls):
        return np.ones(len(host), bool)
    return np.isin(host.thread, np.unique(host.thread[calls]))


def _inside(start: Floats, end: Floats, moment: Floats) -> Bools:
    """Tell which moments lie in any of some calls."""
    parts = covered(start, end)
    if not len(parts):
        return np.zeros(len(moment), bool)
    at = np.searchsorted(parts.start_s, moment, side="right") - 1
    return (at >= 0) & (moment <= parts.end_s[np.maximum(at, 0)])


def attribute_all(
    recordings: tuple[Recording, ...], windows: tuple[StepWindows, ...], matches: Matches
) -> tuple[StepAttribution, ...]:
    """Return the accounts of all ranks."""
    return tuple(attribute(one, mine, matches.transfer_s[place])
                 for place, (one, mine) in enumerate(zip(recordings, windows, strict=True)))  # fmt: skip
