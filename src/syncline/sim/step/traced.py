"""What a trace of a real step tells a calibration: the step, and its parts by the multiplier that they set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from syncline.errors import DescriptionError
from syncline.sim.step.calibrate import Observation
from syncline.sim.step.replay import OWN_WORK, replay
from syncline.workload.trace import is_trace, read_trace
from syncline.workload.traces.kernel_times import KINDS, KernelTimes, kind_of, read_kernels


def observed_trace(path: str | Path, *, steps: int | None, pipelined: bool) -> Observation:
    """Return what a trace says of one step; `steps` is how many it holds where it does not mark them.

    In a pipeline a receive spins until its stage has work: what is exposed there is not what the exchange takes.
    """
    path = Path(path)
    if path.is_dir() or path.name.lower().endswith((".et", ".et.gz")) or (is_trace(path) and not path.is_file()):
        return _of_graph(path, steps or 1, pipelined)
    kernels = read_kernels(path)
    return of_kernels(kernels, steps, pipelined, str(path))


def of_kernels(kernels: KernelTimes, steps: int | None, pipelined: bool, where: str) -> Observation:
    """Return what the kernels of one device say of one step."""
    marked = len(kernels.step_s)
    if not marked and steps is None:
        raise DescriptionError(
            "the trace does not mark its steps.", where=where,
            hint="Say how many it holds: --steps 3 (the PyTorch profiler marks them with profiler.step()).",
        )  # fmt: skip
    if marked:
        # The first profiled step pays for the start of the profiler.
        step_s = float(np.median(kernels.step_s[1:] if marked > 2 else kernels.step_s))
        count = float(kernels.step_s.sum()) / step_s
    else:
        count = float(steps or 1)
        step_s = kernels.span_s / count
    parts = {name: total / count for name, total in kernels.sums_s().items() if name != "exchange"}
    if not pipelined:
        parts["exchange"] = kernels.exposed_s() / count
    return Observation(step_s, parts)


def _of_graph(path: Path, steps: int, pipelined: bool) -> Observation:
    """Return what a Chakra trace says: durations by name, and the step as its operations follow each other."""
    workload = read_trace(path)
    timeline = replay(workload)
    if timeline.makespan_s <= 0:
        raise DescriptionError(
            "the trace has no durations.", where=str(path), hint="Give a trace of a run, not of a generator."
        )
    mine = workload.rank == workload.rank.min()
    length = np.nan_to_num(workload.duration_s, nan=0.0)
    kinds = np.array([KINDS.index(kind_of(name)) for name in workload.names] or [0])[workload.label]
    own = mine & (workload.kind == 0)
    parts = {name: float(length[own & (kinds == KINDS.index(name))].sum()) / steps for name in KINDS[:2]}
    if not pipelined:
        parts["exchange"] = float(timeline.exposed_s(compute=OWN_WORK).max()) / steps
    return Observation(timeline.makespan_s / steps, parts)
