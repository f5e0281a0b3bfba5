"""Communication that was not hidden, and why: its stream, its size, the order of work, kernels that it slows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from syncline.describe import units
from syncline.explaining.attribution import StepAttribution
from syncline.explaining.groups import exposed_s
from syncline.explaining.matching import call_of, rows_of
from syncline.timeline.account.sweep import covered, overlap
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.recording.recording import Bools, Doing

SMALL_BYTES = 1 << 20
LEAST_SHARE = 0.005
BESIDE = (("multiprocessors", "fewer channels (NCCL_MAX_CTAS), copy engines or SHARP for what overlaps"),
          ("cores", "fewer threads that compute (OMP_NUM_THREADS): gloo's need cores too"))  # fmt: skip
"""What collectives take from kernels of a GPU, and from the work of a CPU, with what helps."""


@dataclass(frozen=True)
class LostOverlap:
    """One reason why communication is not hidden, and the time a step loses by it."""

    reason: str
    seconds: float
    advice: str


def lost_overlap(mine: StepAttribution) -> tuple[LostOverlap, ...]:
    """Return why communication is not hidden on one rank, the largest loss first; seconds are of one step."""
    recording, steps = mine.recording, max(len(mine.windows), 1)
    if not (recording.device.doing == Doing.COMPUTE).any():
        return ()  # a log of collectives alone does not tell what could have hidden them
    rows = rows_of(recording)
    bare = exposed_s(mine, rows) if len(rows) else np.empty(0)
    reasons: dict[tuple[str, str], float] = defaultdict(float)
    _add_copies(mine, reasons, steps)
    shared = _shares_stream(mine, rows)
    last = _last_work(mine)
    for at, row in enumerate(rows.tolist()):
        if bare[at] <= 0:
            continue
        reasons[_reason(mine, row, bool(shared[at]), last)] += float(bare[at]) / steps
    found = [LostOverlap(reason, seconds, advice) for (reason, advice), seconds in reasons.items()]
    slowed = slowed_kernels_s(mine) / steps
    if slowed > 0:
        cores, advice = BESIDE[recording.device_name == "CPU"]
        reason = f"kernels run slower beside collectives, which take {cores} and memory bandwidth"
        found.append(LostOverlap(reason, slowed, advice))
    least = LEAST_SHARE * mine.windows.median_s
    return tuple(sorted((one for one in found if one.seconds >= least), key=lambda one: -one.seconds))


def _add_copies(mine: StepAttribution, reasons: dict[tuple[str, str], float], steps: int) -> None:
    """Add copies that no kernel hides because they run on the stream that computes."""
    device = mine.recording.device
    rows = np.flatnonzero(device.doing == Doing.COPY)
    if not len(rows):
        return
    work = device.doing == Doing.COMPUTE
    hidden = overlap(covered(device.start_s[work], device.end_s[work]), device.start_s[rows], device.end_s[rows])
    bare = device.end_s[rows] - device.start_s[rows] - hidden
    inside = (device.start_s[rows] >= mine.windows.begin_s[0]) & (device.end_s[rows] <= mine.windows.end_s[-1])
    chosen = _shares_stream(mine, rows) & inside
    if chosen.any():
        key = ("copies run on the stream that computes, so nothing can run beside them",
               "copy on a separate stream, from pinned memory, with non_blocking=True")  # fmt: skip
        reasons[key] += float(bare[chosen].sum()) / steps


def _reason(mine: StepAttribution, row: int, shared: bool, last: Floats) -> tuple[str, str]:
    recording = mine.recording
    call, device = call_of(recording, row), recording.device
    if shared:
        return (
            f"{call.operation} runs on the stream that computes, so nothing can run beside it",
            "launch it asynchronously (async_op=True) on a separate stream",
        )
    if call.size_bytes and call.size_bytes < SMALL_BYTES:
        return (
            f"{call.operation} of less than {units.show_size(SMALL_BYTES)}: latency, not bandwidth",
            "larger buckets, or fewer and larger messages",
        )
    step = int(np.searchsorted(mine.windows.begin_s, device.start_s[row], side="right")) - 1
    if step >= 0 and device.end_s[row] >= last[step]:
        return (
            f"{call.operation} after the last kernel that it could hide behind",
            "smaller last bucket, earlier launch, or overlap with the optimizer or the next forward",
        )
    return (
        f"kernels wait for {call.operation} as soon as it starts",
        "launch it earlier (prefetch), or give the device independent work",
    )


def _shares_stream(mine: StepAttribution, rows: Ints) -> Bools:
    """Tell which collectives run on a stream that mostly computes."""
    device = mine.recording.device
    busy = np.bincount(device.stream, weights=(device.end_s - device.start_s) * (device.doing == Doing.COMPUTE))
    return np.asarray(busy[device.stream[rows]] > 0.5 * busy.sum()) if busy.sum() > 0 else np.zeros(len(rows), bool)


def _last_work(mine: StepAttribution) -> Floats:
    """Return when the last long stretch of kernels of each step ends: the optimizer comes after it."""
    device, windows = mine.recording.device, mine.windows
    work = device.doing == Doing.COMPUTE
    found = np.full(len(windows), np.inf)
    for step in range(len(windows)):
        inside = work & (device.start_s >= windows.begin_s[step]) & (device.end_s <= windows.end_s[step])
        if inside.any():
            length = device.end_s[inside] - device.start_s[inside]
            done = np.cumsum(length) / max(float(length.sum()), 1e-12)
            found[step] = float(device.end_s[inside][int(np.searchsorted(done, 0.9))])
    return found


def slowed_kernels_s(mine: StepAttribution) -> float:
    """Return how much longer kernels take beside collectives than the same kernels alone, in all."""
    device = mine.recording.device
    work = np.flatnonzero(device.doing == Doing.COMPUTE)
    moves = rows_of(mine.recording)
    if not len(work) or not len(moves):
        return 0.0
    length = device.end_s[work] - device.start_s[work]
    beside = overlap(covered(device.start_s[moves], device.end_s[moves]), device.start_s[work], device.end_s[work])
    share = np.divide(beside, length, out=np.zeros(len(work)), where=length > 0)
    alone, inside = share < 0.05, share > 0.95
    extra = 0.0
    for name in np.unique(device.name[work]).tolist():
        of = device.name[work] == name
        if (of & alone).sum() >= 3 and (of & inside).sum() >= 3:
            usual = float(np.median(length[of & alone]))
            extra += float(np.maximum(np.median(length[of & inside]) - usual, 0.0) * (of & inside).sum())
    return extra
