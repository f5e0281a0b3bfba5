"""What a trace of a real step tells a calibration: the step, and its parts by the multiplier that they set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from syncline.errors import DescriptionError
from syncline.explaining.attribution import StepAttribution, attribute
from syncline.explaining.reading import read_recordings
from syncline.explaining.steps import windows_of
from syncline.sim.step.calibrate import Observation
from syncline.timeline.account import StepCause
from syncline.timeline.recording.kernel_kind import EXCHANGE, KINDS, kind_of
from syncline.timeline.recording.recording import Doing


def observed_trace(path: str | Path, *, steps: int | None, pipelined: bool) -> Observation:
    """Return what a trace says of one step; `steps` is how many it holds where it does not mark them."""
    recording = read_recordings([path])[0]
    windows = windows_of(recording)
    mine = attribute(recording, windows, np.full(len(recording.device), np.nan))
    return observed(mine, steps=steps, pipelined=pipelined)


def observed(mine: StepAttribution, *, steps: int | None = None, pipelined: bool = False) -> Observation:
    """Return what one rank's recording says of one step.

    In a pipeline a receive spins until its stage has work: what is exposed there is not what the exchange takes. What
    is waited for a late rank is not either, where the traces of other ranks tell it.
    """
    recording, windows = mine.recording, mine.windows
    if recording.steps:
        # The first profiled step pays for the start of the profiler.
        step_s = float(np.median(windows.length_s[1:] if len(windows) > 2 else windows.length_s))
        count = float(windows.length_s.sum()) / step_s
    elif steps is None and recording.tool != "Chakra":
        raise DescriptionError(
            "the trace does not mark its steps.", where=recording.where,
            hint="Say how many it holds: --steps 3 (the PyTorch profiler marks them with profiler.step()).",
        )  # fmt: skip
    else:
        count = float(steps or 1)
        step_s = float(windows.length_s.sum()) / count
    device = recording.device
    kinds = np.array([KINDS.index(kind_of(name)) for name in recording.names] or [0])[device.name]
    work = (
        (device.doing == Doing.COMPUTE) & (device.start_s >= windows.begin_s[0]) & (device.end_s <= windows.end_s[-1])
    )
    sums = np.bincount(kinds[work], weights=(device.end_s - device.start_s)[work], minlength=len(KINDS)) / count
    parts = {name: float(sums[place]) for place, name in enumerate(KINDS) if name != EXCHANGE and sums[place] > 0}
    if not pipelined:
        parts[EXCHANGE] = mine.total.seconds(StepCause.NETWORK) / count
    return Observation(step_s, parts)
