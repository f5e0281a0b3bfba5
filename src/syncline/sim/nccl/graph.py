"""NCCL's channel search as a closed form: how many channels at what speed a ring, a tree and an NVLS tree get.

NCCL tries speeds of a ladder from the top, fits as many channels as NVLink and NICs carry, and then splits channels in
two where that is allowed (`src/graph/search.cc`). On boxes where every GPU reaches every other at one speed the outcome
has this closed form; it reproduces public logs of DGX A100 (12 x 20 alone, 8 x 24 across), DGX H100 (12 x 30, 8 x 45)
and B200 (16 x 45, 8 x 48).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from syncline.sim.nccl.system import NcclSystem

_INTRA: dict[int, tuple[float, ...]] = {
    80: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    90: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    100: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
_INTER: dict[int, tuple[float, ...]] = {
    80: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    90: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    100: (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
}
_MAX_CHANNELS = 32


@dataclass(frozen=True)
class Graph:
    """One search result: channels and what each carries inside a host and between hosts."""

    num_channels: int
    intra_GBps: float
    inter_GBps: float


@dataclass(frozen=True)
class Graphs:
    """The three graphs that matter: ring, tree and NVLS (None without NVLS)."""

    ring: Graph
    tree: Graph
    nvls: Graph | None

    @property
    def real_channels(self) -> int:
        """Channels the kernels use between hosts: NCCL connects each ring twice."""
        return 2 * self.ring.num_channels


def _ladder(system: NcclSystem, table: dict[int, tuple[float, ...]]) -> tuple[float, ...]:
    sm = system.facts.sm
    return table[100 if sm >= 100 else 90 if sm >= 90 else 80]


def _split(system: NcclSystem, num_channels: int, speed: float) -> tuple[int, float]:
    """Split channels in two the way NCCL does when each is fast and there are few."""
    hopper_or_later = system.facts.sm > 80
    if speed < 25 or (hopper_or_later and speed < 50 and num_channels > 4) or 2 * num_channels > _MAX_CHANNELS:
        return num_channels, speed
    return 2 * num_channels, speed / 2


def _inside_GBps(system: NcclSystem) -> float:
    """Bandwidth one GPU has to its neighbours in the island: NVLink, else PCIe."""
    return system.nvlink_GBps or system.pcie_GBps


def _ring_alone(system: NcclSystem) -> Graph:
    total = _inside_GBps(system)
    best = (0, 0.0)
    for speed in _ladder(system, _INTRA):
        count = min(int(total / speed + 1e-9), _MAX_CHANNELS // 2)
        if count * speed > best[0] * best[1] * 1.001:
            best = (count, speed)
    count, speed = _split(system, *best) if best[0] else (1, total)
    return Graph(count, speed, speed)


def _ring_across(system: NcclSystem) -> Graph:
    total, nic = _inside_GBps(system), system.believed_nic_GBps
    num_nics = system.num_nics * (max(1, system.hosts_per_island))
    best = (1, min(nic, total, 0.1))
    for speed in _ladder(system, _INTER):
        if speed > nic * 1.001:
            continue
        count = min(num_nics * int(nic / speed + 1e-9), int(total / speed + 1e-9), _MAX_CHANNELS // 2)
        if count * speed > best[0] * best[1] * 1.001:
            best = (count, speed)
    count, speed = _split(system, *best)
    return Graph(count, speed, speed)


def _tree(system: NcclSystem, ring: Graph) -> Graph:
    """Return the tree graph: on more than one host the search raises only its speed inside the host."""
    if system.num_islands == 1:
        return ring
    top = 60.0 if system.facts.sm >= 90 else 40.0
    return Graph(
        ring.num_channels, max(ring.intra_GBps, min(_inside_GBps(system) / ring.num_channels, top)), ring.inter_GBps
    )


def _nvls(system: NcclSystem, ring: Graph) -> Graph | None:
    heads = min(system.ranks_per_island, 16)
    if not (system.facts.nvls and system.has_nvswitch) or heads < 2:
        return None
    ranks = system.ranks_per_island
    room = system.nvlink_GBps * ranks / (ranks - 1) / heads
    speed = next((s for s in _ladder(system, _INTRA) if s <= room), room)
    inter = ring.inter_GBps if system.num_islands == 1 else ring.inter_GBps * ring.num_channels / heads
    return Graph(heads, speed, inter)


@lru_cache(maxsize=4096)
def search(system: NcclSystem) -> Graphs:
    """Return the channels NCCL would find on this hardware."""
    ring = _ring_alone(system) if system.num_islands == 1 else _ring_across(system)
    return Graphs(ring, _tree(system, ring), _nvls(system, ring))
