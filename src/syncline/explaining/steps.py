"""Which part of a recording each step is: as the device worked through it, not as the host launched it.

A host may be steps ahead of its device. A step therefore begins when the host marks it and all that it launched before
is done, and ends when the next one begins. Steps leave no gap between them, so their accounts add up to the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.timeline.columns import Floats, Ints
from syncline.timeline.recording.recording import Recording


@dataclass(frozen=True, eq=False)
class StepWindows:
    """Begin and end of each step on one rank; `names` as the host marked them."""

    names: tuple[str, ...]
    begin_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.names)

    @property
    def length_s(self) -> Floats:
        """How long each step took."""
        return self.end_s - self.begin_s

    @property
    def median(self) -> int:
        """The step in the middle, by length; of two the shorter."""
        return int(np.argsort(self.length_s, kind="stable")[(len(self) - 1) // 2])

    @property
    def median_s(self) -> float:
        """How long that step took."""
        return float(self.length_s[self.median])

    @property
    def worst(self) -> int:
        """The longest step."""
        return int(self.length_s.argmax())


def windows_of(recording: Recording) -> StepWindows:
    """Return the steps of a recording; all of it where it marks none."""
    device = recording.device
    if not recording.steps:
        begin, end = _extent(recording)
        return StepWindows(("the whole trace",), np.array([begin]), np.array([end]))
    starts = np.array([mark.start_s for mark in recording.steps])
    ends = np.array([mark.end_s for mark in recording.steps])
    step = step_of(recording, starts)
    done = np.full(len(starts) + 1, -np.inf)  # when all that was launched before each step is done
    np.maximum.at(done, np.minimum(step + 1, len(starts)), device.end_s)
    done = np.maximum.accumulate(done)
    begin_s = np.maximum.accumulate(np.maximum(starts, done[:-1]))
    last = max(float(ends[-1]), float(done[-1]), float(begin_s[-1]))
    names = tuple(mark.name.removeprefix("ProfilerStep#") for mark in recording.steps)
    return StepWindows(names, begin_s, np.append(begin_s[1:], last))


def launched_steps(recording: Recording) -> Recording:
    """Return a recording without marks of steps that launched nothing: a profiler may end with one."""
    starts = np.array([mark.start_s for mark in recording.steps])
    launched = np.bincount(step_of(recording, starts) + 1, minlength=len(starts) + 1)[1:] > 0
    if launched.all() or not launched.any():
        return recording
    return replace(recording, steps=tuple(np.array(recording.steps, object)[launched].tolist()))


def step_of(recording: Recording, starts: Floats) -> Ints:
    """Return which step launched each device activity; -1 for what was launched before the first."""
    device, host = recording.device, recording.host
    moment = device.start_s.copy()
    known = device.call >= 0
    moment[known] = host.start_s[device.call[known]]
    return np.searchsorted(starts, moment, side="right") - 1


def _extent(recording: Recording) -> tuple[float, float]:
    """Return from the first launch to the last end on the device; of the host where nothing ran on a device."""
    device = recording.device
    if not len(device):
        return recording.start_s, recording.end_s
    launches = device.call[device.call >= 0]
    first = float(recording.host.start_s[launches].min()) if len(launches) else np.inf
    return min(first, float(device.start_s.min())), float(device.end_s.max())
