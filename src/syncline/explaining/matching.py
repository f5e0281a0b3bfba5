"""The same collective on several ranks, and how long each waited in it for the last to come.

Ranks of one collective end it together, so the rank that comes last is in it for the shortest time. What another rank
spends longer in it, it waited. Durations alone are compared: no two hosts' clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from syncline.explaining.steps import StepWindows, step_of
from syncline.timeline.account.sweep import covered
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.recording.recording import CollectiveCall, Doing, Recording

Instance = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Matches:
    """By rank and device row of a collective: how long its data took, and how long it was waited for."""

    transfer_s: dict[int, Floats]
    """By position of the recording: NaN where no other rank's recording has the collective."""
    last: dict[Instance, int] = field(default_factory=dict)
    """The rank that came last to a collective that ranks waited for."""
    late_s: dict[int, float] = field(default_factory=dict)
    """By rank: what the others waited for it in all, the one that waited longest."""
    matched: int = 0


def rows_of(recording: Recording) -> Ints:
    """Return the device rows that are collectives."""
    return np.flatnonzero(recording.device.doing == Doing.COLLECTIVE)


def match(recordings: Sequence[Recording], windows: Sequence[StepWindows]) -> Matches:
    """Return what ranks waited for each other; with one recording nothing is known."""
    transfer = {place: np.full(len(one.device), np.nan) for place, one in enumerate(recordings)}
    if len(recordings) < 2:
        return Matches(transfer)
    seen: dict[Instance, list[tuple[int, int]]] = defaultdict(list)
    for place, recording in enumerate(recordings):
        for instance, row in _instances(recording):
            seen[instance].append((place, row))
    last: dict[Instance, int] = {}
    waits: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    matched = 0
    for instance, found in seen.items():
        if len(found) < 2 or len({place for place, _ in found}) < len(found):
            continue
        lengths = [_length(recordings[place], row) for place, row in found]
        shortest = min(lengths)
        matched += 1
        for place, row in found:
            transfer[place][row] = shortest
        who = recordings[found[lengths.index(shortest)][0]].rank
        last[instance] = who
        for (place, row), length in zip(found, lengths, strict=True):
            begin = float(recordings[place].device.start_s[row])
            waits[who][place].append((begin, begin + length - shortest))
    late = {who: max(_covered_s(spans) for spans in by_waiter.values()) for who, by_waiter in waits.items()}
    return Matches(transfer, last, late, matched)


def _covered_s(spans: list[tuple[float, float]]) -> float:
    """Return how long some waits last together: collectives beside each other wait for a rank at the same time."""
    table = np.array(spans, np.float64)
    parts = covered(table[:, 0], table[:, 1])
    return float((parts.end_s - parts.start_s).sum())


def _instances(recording: Recording) -> list[tuple[Instance, int]]:
    """Return each collective of a rank with the name that its group's other ranks give it too."""
    rows = rows_of(recording)
    starts = np.array([mark.start_s for mark in recording.steps])
    step = step_of(recording, starts)[rows] if len(starts) else np.zeros(len(rows), np.int64)
    count: dict[Instance, int] = defaultdict(int)
    found = []
    for row, number in zip(rows.tolist(), step.tolist(), strict=True):
        call = call_of(recording, row)
        if call.operation == "send-receive":
            continue
        key: Instance = (number, call.members or call.group, call.operation)
        found.append(((*key, count[key]), row))
        count[key] += 1
    return found


def call_of(recording: Recording, row: int) -> CollectiveCall:
    """Return what collective a device row is."""
    number = int(recording.device.collective[row])
    return recording.collectives[number] if number >= 0 else CollectiveCall("exchange")


def _length(recording: Recording, row: int) -> float:
    return float(recording.device.end_s[row] - recording.device.start_s[row])
