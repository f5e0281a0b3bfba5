"""One operation on one system, with the constants and the calibration to price it; and the cost of a pipeline.

us, bytes and GB/s (1e3 bytes per us). `expect.py` has the formulae that read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.belief import num_steps, table
from syncline.sim.nccl.constants import NcclConstants, NcclMachine, NcclNetwork, default_constants
from syncline.sim.nccl.graph import Graphs, search
from syncline.sim.nccl.system import MAX_POINT_HOSTS, NcclSystem

Floats = npt.NDArray[np.float64]
RING_OPS = ("all_reduce", "all_gather", "reduce_scatter")
#: Cards that boards with two sockets have at each.
CARDS_OF_A_SOCKET = 4
#: What a port carries past two hosts whatever the others do; beyond it ports lose among themselves.
ROOMY_GBps = 40.0


@dataclass(frozen=True)
class Scale:
    """Multipliers that a calibration puts on the constants; all 1 when nothing is measured."""

    ll_hop: float = 1.0
    simple_hop: float = 1.0
    ll_copy: float = 1.0
    efficiency: float = 1.0
    pipeline: float = 1.0
    intra: float = 1.0


@dataclass(frozen=True)
class NcclOperation:
    """One operation on one system with the constants to price it."""

    system: NcclSystem
    op: str
    constants: NcclConstants = field(default_factory=default_constants)
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graphs", search(self.system))

    graphs: Graphs = field(init=False, repr=False)

    @cached_property
    def net(self) -> NcclNetwork:
        kind = self.constants.networks[self.system.network]
        # Trees have a few peers each; a ring or an all-to-all of so many ranks has more messages under way than a NIC
        # that matches them in hardware can list.
        crowded = self.hosts > MAX_POINT_HOSTS and self.op != "all_reduce" and kind.crowded_as
        return self.constants.networks[kind.crowded_as] if crowded else kind

    @property
    def machine(self) -> NcclMachine:
        return self.constants.machine

    @cached_property
    def row(self) -> int:
        return self.system.facts.machine_row

    @cached_property
    def n(self) -> int:
        return self.system.num_ranks

    @cached_property
    def hosts(self) -> int:
        return self.system.num_islands

    @cached_property
    def p(self) -> int:
        return self.system.ranks_per_island

    @cached_property
    def width(self) -> float:
        """NVLink domains wider than 8 GPUs: how much deeper than with 8 an in-switch pipeline is."""
        return float(max(1.0, self.p / 8) ** 0.8)

    @cached_property
    def depth(self) -> int:
        return math.floor(math.log2(self.hosts))

    @property
    def levels(self) -> float:
        """Hops of flagged words from a leaf of the tree to its root, in first levels: only the root has one child."""
        return 1 + (self.depth - 1) * self.net.tree_level if self.depth else 0.0

    @cached_property
    def steps(self) -> int:
        return num_steps(self.op, self.n)

    @cached_property
    def inter(self) -> int:
        """Steps between hosts of the chunk that crosses most: a ring leaves a host once in every p of its steps.

        NCCL's own table counts one or two fewer: it forgets the chunk that starts right before a NIC.
        """
        if self.hosts == 1:
            return 0
        return -(-self.steps // self.p) if self.op in RING_OPS else self.hosts

    @cached_property
    def channels(self) -> int:
        """Channels that kernels use: NCCL doubles them between hosts and takes at least 8 inside one."""
        return self.graphs.real_channels if self.hosts > 1 else max(self.graphs.ring.num_channels, 8)

    @cached_property
    def nvlink_GBps(self) -> float:
        if not self.system.nvlink_GBps:
            return self.cards_GBps
        efficiency = self.machine.nvlink_efficiency[self.row]
        return self.system.nvlink_GBps * efficiency * (self.scale.efficiency if self.hosts == 1 else 1.0)

    @property
    def cards_GBps(self) -> float:
        """What a ring of cards gets of PCIe: all of it between peers of a socket, less past it or in host memory."""
        share = self.machine.pcie_sockets if self.p > CARDS_OF_A_SOCKET else 1.0
        if self.p > 1 and not self.system.peer_access:
            share = self.machine.pcie_staged / min(self.system.uplink_cards, self.p)
        return self.system.usable_pcie_GBps * share

    @cached_property
    def nic_GBps(self) -> float:
        # A port of 200 Gb/s leaves the switches room; three of four public clusters with 400 Gb/s lose a tenth.
        port = self.system.port_GBps
        many = max(min(port, ROOMY_GBps), self.net.many_hosts * port) / port if self.hosts > 2 else 1.0
        # What fast ports lose among themselves does not come off a cell's way out that is thinner than they are.
        share = min(1.0, self.net.efficiency * self.scale.efficiency) * self.crowd_share
        return min(self.wire_GBps * many, self.system.ring_cap_Bps / 1e9) * share

    @property
    def crowd_share(self) -> float:
        """Share of a NIC that a job past 64 NVLink domains gets: its flows meet one another in the upper switches."""
        return float(max(1.0, self.hosts / MAX_POINT_HOSTS) ** -self.net.crowding)

    @cached_property
    def wire_GBps(self) -> float:
        """What the NICs of an island carry at most: line rate, PCIe, path cap, or what their software can move."""
        num_nics = self.system.num_nics * self.system.hosts_per_island
        return num_nics * min(self.system.nic_GBps, self.net.nic_cap_GBps)

    @property
    def ring_GBps(self) -> float:
        if self.hosts == 1:
            return self.nvlink_GBps
        # The GPU that sends to the NIC does not send over NVLink, so a ring across hosts loads NVLink less.
        return min(self.nvlink_GBps * self.p / max(1, self.p - 1), self.nic_GBps)

    @property
    def intra_ll_us(self) -> float:
        inside = self.machine.intra_ll_us[self.row] if self.system.nvlink_GBps else 1.0
        return inside * self.scale.intra

    @property
    def intra_ll128(self) -> float:
        """How much longer than NCCL's table an LL128 step over NVLink takes: half as far off (in log) as an LL step."""
        return self.scale.intra * math.sqrt(max(1.0, self.machine.intra_ll_us[self.row] / 0.6))

    @property
    def one_host_ll_us_per_KiB(self) -> float:
        return self.machine.one_host_ll_us_per_KiB[self.row]

    @property
    def host_copy(self) -> float:
        """How much dearer LL buffers, which sit in host memory, are over PCIe Gen4 and older than over Gen5."""
        return min(2.0, max(1.0, 48 / self.system.pcie_GBps))

    def overlapped(self, latency_us: Floats | float, bytes_us: Floats) -> Floats:
        """Combine the latency of a ring's steps with its bytes, one hiding behind the other as the network lets it."""
        q = self.net.overlap
        return np.asarray((latency_us**q + bytes_us**q) ** (1 / q))

    def cap(self, name: str) -> float:
        """A per-channel cap of NCCL's table for this generation and number of hosts."""
        return float(table(self.system.nccl)[name][self.system.facts.generation][min(self.hosts, 3) - 1])


def pipe(latency_us: Floats | float, bytes_us: Floats, loss: float, cap_bytes: float, sizes: Floats) -> Floats:
    """Return the cost of a chunked pipeline that adapts its chunk: latency, bytes and a cross term.

    The cross term stops growing at `cap_bytes`, where the chunk has reached its largest size.
    """
    return np.asarray(
        latency_us + bytes_us + 2 * loss * np.sqrt(latency_us * bytes_us * np.minimum(1.0, cap_bytes / sizes))
    )


@dataclass(frozen=True, eq=False)
class NcclCalibration:
    """Multipliers on the model and the log-ratio left at each measured size."""

    scale: Scale
    knots: Floats
    left: Floats

    def correction(self, sizes: Floats) -> Floats:
        """Return the factor on the scaled model: interpolated in log size, constant outside the measured sizes."""
        return np.asarray(np.exp(np.interp(np.log(sizes), self.knots, self.left)))
