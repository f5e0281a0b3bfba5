"""How much buffer a job needs: the smallest that keeps it near its ideal, where to mark, where to pause, what headroom.

sizing = size_buffers(network, [incast(network.fabric, 32, 2e6)], PacketOptions("dcqcn"), within=0.05)
sizing.buffer_bytes, sizing.marks, sizing.pause_bytes, sizing.headroom

Every figure is a run of the engine. The ideal is the same job with a buffer that nothing fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric.pause import response_bytes
from syncline.sim.packet.network import PacketNetwork
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.parameters import Marks
from syncline.sim.packet.posting import PacketJob
from syncline.sim.packet.run import simulate
from syncline.sim.packet.traffic import Traffic

AMPLE_BYTES = 1e9
LEAST_BYTES = 16e3
MARK_STEPS_S = (0.5e-6, 1e-6, 2e-6, 4e-6, 8e-6, 16e-6, 32e-6)
_STEPS = 9
_SPEED = 2e8
"""Metres a second in fibre and copper."""


@dataclass(frozen=True)
class BufferTrial:
    """One run: what it was given, how long it took, and what was lost or paused."""

    buffer_bytes: float
    time_s: float
    drops: int
    pauses: int
    peak_bytes: int
    mark_s: float = 0.0


@dataclass(frozen=True)
class Headroom:
    """What a port of one kind of cable can still send after its peer decided to pause it.

    Both ways of the cable, a whole packet that had just begun at either end, and the pause frame itself. Simulated
    ports stop at once; `response_bytes` more may come from one that takes as long as IEEE 802.3 allows.
    """

    rate_Bps: float
    latency_s: float
    length_m: float
    """The longest cable that this latency allows."""
    ports: int
    headroom_bytes: int
    response_bytes: int


@dataclass(frozen=True)
class BufferSizing:
    """The answer, and the runs behind it."""

    ideal_s: float
    within: float
    lossless: bool
    buffer_bytes: float
    """Of a switch, headroom included."""
    pause_bytes: int
    """What one ingress may hold before it is paused; 0: nothing is ever paused."""
    marks: Marks | None
    headroom: tuple[Headroom, ...]
    headroom_bytes: float
    """Of the switch with the most of it."""
    buffer_trials: tuple[BufferTrial, ...]
    mark_trials: tuple[BufferTrial, ...]


def headroom_rows(network: PacketNetwork, payload_bytes: int) -> tuple[Headroom, ...]:
    """Return the headroom of each kind of port that a switch receives on."""
    into = network.dst >= 0
    kinds, count = np.unique(
        np.stack((network.rate_Bps[into], network.latency_ps[into].astype(np.float64))), axis=1, return_counts=True
    )
    frame = payload_bytes + 200
    return tuple(
        Headroom(
            float(rate),
            latency * 1e-12,
            latency * 1e-12 * _SPEED,
            int(n),
            round(rate * latency * 2e-12 + 3 * frame),
            response_bytes(float(rate)),
        )
        for (rate, latency), n in zip(kinds.T, count, strict=True)
    )


def size_buffers(
    network: PacketNetwork,
    loads: Sequence[PacketJob | Traffic],
    options: PacketOptions,
    *,
    within: float = 0.05,
    tried: Callable[[BufferTrial], None] | None = None,
) -> BufferSizing:
    """Return the smallest buffer, and the lowest marks, with which loads take at most `within` longer than ideal."""
    if not 0 < within < 10:
        raise SimulationError(
            f"the tolerance must be above 0 and below 10, got {within:g}.", hint="Write 0.05 for a twentieth."
        )
    first = options.sets[0]
    lossless = first.lossless if options.lossless is None else options.lossless
    rows = headroom_rows(network, options.payload_bytes)
    into = network.dst >= 0
    each = network.rate_Bps[into] * network.latency_ps[into] * 2e-12 + 3 * (options.payload_bytes + 200)
    most = float(np.bincount(network.dst[into], weights=each).max(initial=0.0)) if lossless else 0.0

    def trial(changed: PacketOptions, buffer_bytes: float, mark_s: float = 0.0) -> BufferTrial:
        outcome = simulate(network, loads, replace(changed, buffer_bytes=buffer_bytes, buffer_s=0.0))
        if outcome.state != "finished":
            time_s = float("inf")
        else:
            time_s = max(outcome.job_end_s(i) for i in range(len(loads)))
        counters = outcome.counters
        found = BufferTrial(
            buffer_bytes, time_s, counters["drops"] + counters["lossless_drops"], counters["pauses"],
            int(outcome.ports["peak_bytes"].max(initial=0)), mark_s,
        )  # fmt: skip
        if tried is not None:
            tried(found)
        return found

    ample = trial(options, max(AMPLE_BYTES, 4 * most))
    good_s = ample.time_s * (1 + within)
    trials = [ample]
    floor = most / 0.9 + LEAST_BYTES if lossless else LEAST_BYTES
    high = max(min(ample.buffer_bytes, max(ample.peak_bytes * 4.0, 2 * floor)), floor)
    low = floor
    best = trial(options, high)
    trials.append(best)
    while best.time_s > good_s and high < ample.buffer_bytes:  # a share of a buffer is less than the buffer
        low, high = high, min(4 * high, ample.buffer_bytes)
        best = trial(options, high)
        trials.append(best)
    for _ in range(_STEPS):
        if high / low < 1.1:
            break
        middle = trial(options, float(np.sqrt(high * low)))
        trials.append(middle)
        if middle.time_s <= good_s and (not lossless or middle.drops == 0):
            high, best = middle.buffer_bytes, middle
        else:
            low = middle.buffer_bytes
    marks, mark_trials = None, []
    if first.marks is not None:
        for mark_s in MARK_STEPS_S:
            spread = first.marks.high_s / first.marks.low_s if first.marks.low_s > 0 else 1.0
            wanted = Marks(mark_s, mark_s * spread, first.marks.probability)
            found = trial(replace(options, marks=wanted), high, mark_s)
            mark_trials.append(found)
            if marks is None and found.time_s <= good_s:
                marks = wanted
    return BufferSizing(
        ample.time_s, within, lossless, high, _pause_bytes(high, most, options) if lossless else 0, marks, rows, most,
        tuple(trials), tuple(mark_trials),
    )  # fmt: skip


def _pause_bytes(buffer_bytes: float, headroom_bytes: float, options: PacketOptions) -> int:
    """Return what an ingress of an empty switch may hold: an eighth of what is free, or what was asked for."""
    return options.pause_bytes or round((buffer_bytes - headroom_bytes) / 8)
