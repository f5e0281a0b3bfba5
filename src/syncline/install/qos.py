"""Classes, marks and headroom: what each traffic class gets, with the arithmetic.

Headroom is what still arrives after a port has asked its neighbour to pause: the bytes in flight both ways, a frame
each end had begun, and what the neighbour sends until it reacts. ECN must mark well before that, and a queue must
hold one round trip before it is marked, or a link that is not congested would be slowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.model import Handle, reported
from syncline.fabric.fabric import Tier
from syncline.fabric.pause import quanta
from syncline.install.wiring import CablingPlan

MTU_BYTES = 9216
HOST_MTU_BYTES = 9000
EOS_MTU_BYTES = 9214
"""The largest routed frame EOS takes."""
CELL_BYTES = 256
"""Buffers are given out in cells of about this size (Tomahawk 254, Spectrum 192 or less)."""
PAUSE_FRAME_BYTES = 64
QUANTUM_BYTES = 64
ALPHA = 1 / 8
"""Dynamic threshold: a queue may take this share of what is free. Small, so that one incast leaves room for others."""
MAX_MARK_PERCENT = 10


@dataclass(frozen=True)
class QosClass:
    """One class: what marks it, which queue it has and what that queue is promised."""

    name: str
    dscp: tuple[int, ...]
    queue: int
    lossless: bool
    ecn: bool
    weight_percent: int | None
    """Share of the link when all are busy; None: strict priority."""
    why: str


CLASSES = (
    QosClass("training", (26,), 3, True, True, 70, "RDMA goes back to the lost packet, so this class is lossless"),
    QosClass("storage", (18,), 2, False, True, 20, "checkpoints and reading are TCP: it copes with loss, not bursts"),
    QosClass("default", (0,), 0, False, False, 10, "everything else must not starve, and must not disturb"),
    QosClass("control", (48,), 6, False, False, None, "congestion notices and BGP are few and must not wait"),
)
TRAINING, CONTROL = CLASSES[0], CLASSES[3]


@dataclass(frozen=True)
class PortBuffer:
    """Headroom of ports of one rate and cable length, with the sum that gives it."""

    rate_Bps: float
    length_m: float
    flight_bytes: float
    frames_bytes: int
    reaction_bytes: float
    headroom_bytes: int
    count: int = 1
    """How many ports of a switch are alike."""

    @reported
    def arithmetic(self) -> str:
        return (
            f"2 x {self.length_m:g} m x 5 ns/m x {self.rate_Bps / 1e9:g} GB/s = {self.flight_bytes:,.0f} B in flight"
            f" + 2 frames of {MTU_BYTES} B and a pause frame of {PAUSE_FRAME_BYTES} B = {self.frames_bytes:,} B"
            f" + {self.reaction_bytes:,.0f} B until the neighbour stops, in cells of {CELL_BYTES} B"
            f" = {self.headroom_bytes:,} B"
        )


@dataclass(frozen=True)
class SwitchBuffer:
    """What the buffer of one switch is used for, and where its queues mark."""

    switch: str
    part: str
    buffer_bytes: int
    ports: tuple[PortBuffer, ...]
    """Headroom of each kind of port."""
    round_trip_s: float
    mark_from_bytes: Handle[dict[float, int]]
    mark_all_bytes: Handle[dict[float, int]]
    """By port rate: where marking begins, and where it reaches its highest share."""

    @reported
    def headroom_bytes(self) -> int:
        return sum(kind.headroom_bytes * kind.count for kind in self.ports)

    @reported
    def shared_bytes(self) -> int:
        return max(0, self.buffer_bytes - self.headroom_bytes)

    @reported
    def marks_before_pause(self) -> int:
        """How many queues may be full at once while ECN still marks all before PFC pauses."""
        highest = max(self.mark_all_bytes.values(), default=0)
        if not highest:
            return 0
        return max(0, int((ALPHA * self.shared_bytes / highest - 1) / ALPHA))

    @reported
    def arithmetic(self) -> list[str]:
        """The arithmetic, a line each."""
        rows = [f"{kind.count} ports: {kind.arithmetic}" for kind in self.ports]
        rows.append(
            f"headroom of all ports {self.headroom_bytes:,} B of {self.buffer_bytes:,} B; "
            f"{self.shared_bytes:,} B are shared, a queue takes {ALPHA:g} of what is free"
        )
        for rate, low in self.mark_from_bytes.items():
            rows.append(
                f"ECN at {rate * 8 / 1e9:g} Gb/s: round trip {self.round_trip_s * 1e6:.2f} us x {rate / 1e9:g} GB/s "
                f"= {low:,} B, where marking begins; {self.mark_all_bytes[rate]:,} B (4 x), where "
                f"{MAX_MARK_PERCENT} % is marked"
            )
        rows.append(f"ECN marks before PFC pauses while at most {self.marks_before_pause} queues are full at once")
        return rows


def headroom(rate_Bps: float, length_m: float) -> PortBuffer:
    """Return the headroom of a port of that rate at the end of a cable of that length."""
    flight = 2 * length_m * 5e-9 * rate_Bps
    frames = 2 * MTU_BYTES + PAUSE_FRAME_BYTES
    reaction = quanta(rate_Bps * 8) * QUANTUM_BYTES
    cells = -(-int(flight + frames + reaction + 0.999) // CELL_BYTES)
    return PortBuffer(rate_Bps, length_m, flight, frames, reaction, cells * CELL_BYTES)


def buffers(wiring: CablingPlan, lengths: dict[int, float]) -> dict[str, SwitchBuffer]:
    """Return what each Ethernet switch's buffer is used for; `lengths` is the cable length of each wire by number."""
    trip = round_trip_s(wiring)
    numbers = {id(wire): number for number, wire in enumerate(wiring.wires)}
    sizes = {}
    for name in wiring.switch_names:
        model = wiring.switch_model(name)
        if model is None or model.buffer_bytes is None:
            continue
        kinds: dict[tuple[float, float], int] = {}
        for _, _, wire in wiring.of_device.get(name, ()):
            key = wire.rate_Bps, lengths[numbers[id(wire)]]
            kinds[key] = kinds.get(key, 0) + 1
        ports = tuple(replace(headroom(*key), count=count) for key, count in sorted(kinds.items()))
        rates = sorted({rate for rate, _ in kinds})
        low = {rate: _cells(trip * rate) for rate in rates}
        sizes[name] = SwitchBuffer(name, model.name, model.buffer_bytes, ports, trip, low, {
            rate: _cells(4 * trip * rate) for rate in rates
        })  # fmt: skip
    return sizes


def round_trip_s(wiring: CablingPlan) -> float:
    """Return the unloaded round trip of the longest path: every tier's slowest link, up and down, both ways."""
    links = wiring.fabric.links
    one_way = 0.0
    for tier in (Tier.ACCESS, Tier.LEAF_SPINE, Tier.SPINE_CORE):
        mine = links.tier == int(tier)
        if mine.any():
            frame = MTU_BYTES / float(links.rate_Bps[mine & (links.rate_Bps > 0)].min())
            one_way += 2 * (float(np.max(links.latency_s[mine])) + frame)
    return 2 * one_way


def _cells(size_bytes: float) -> int:
    return -(-int(size_bytes) // CELL_BYTES) * CELL_BYTES


def whole_metres(length_m: float) -> int:
    """Return a cable's length in the whole metres that switches take, at least one."""
    return max(1, round(length_m + 0.49))
