"""What NCCL believes each algorithm and protocol would take: its tuning table, by release.

A port of the facts of `src/graph/tuning.cc`. Used to predict NCCL's choice, never as the predicted time: below 64 MiB
the table is 1.5 to 4 times too optimistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.constants import read_data
from syncline.sim.nccl.graph import Graphs, search
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
#: Operations whose algorithm NCCL chooses; all-to-all and send/recv are plain copies between peers.
CHOSEN_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_ALGORITHMS_OF = {
    "all_reduce": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"),
    "broadcast": ("Ring",),
    "reduce": ("Ring",),
}


@dataclass(frozen=True)
class BeliefCell:
    """One cell of the table: latency and algorithm bandwidth that NCCL assumes."""

    latency_us: float
    algbw_GBps: float


@cache
def table(release: tuple[int, int]) -> Any:
    """Return the tuning constants of the newest table that is not newer than `release`."""
    rows = read_data("nccl_belief")
    keys = sorted(rows, key=lambda k: tuple(int(x) for x in k.split(".")))
    usable = [k for k in keys if tuple(int(x) for x in k.split(".")) <= release] or keys[:1]
    return _inherit(usable[-1], rows)


def _inherit(key: str, rows: Any) -> Any:
    row = rows[key]
    return {**_inherit(row["inherits"], rows), **row} if "inherits" in row else dict(row)


def num_steps(op: str, num_ranks: int) -> int:
    """Return how many ring steps an operation takes."""
    return {"all_reduce": 2 * (num_ranks - 1), "all_gather": num_ranks - 1, "reduce_scatter": num_ranks - 1}.get(
        op, num_ranks
    )


def inter_steps(op: str, num_hosts: int) -> int:
    """Return how many of the ring steps cross from host to host."""
    if num_hosts == 1:
        return 0
    return {"all_reduce": 2 * (num_hosts - 1), "all_gather": num_hosts - 1, "reduce_scatter": num_hosts - 1}.get(
        op, num_hosts
    )


@dataclass(frozen=True)
class _Job:
    """Everything a cell of the table is computed from."""

    system: NcclSystem
    graphs: Graphs
    op: str
    t: Any

    @property
    def hosts(self) -> int:
        return self.system.num_islands

    @property
    def column(self) -> int:
        return min(self.hosts, 3) - 1

    def cap(self, name: str) -> float:
        return float(self.t[name][self.system.facts.generation][self.column])

    @property
    def ll_max(self) -> float:
        row = self.system.facts.generation if self.hosts == 1 else (1 if self.system.cpu == "amd" else 0)
        return float(self.t["ll_max_GBps"][row][self.column])


def _ring_GBps(job: _Job, protocol: str) -> float:
    ring = job.graphs.ring
    bus = ring.num_channels * (ring.intra_GBps if job.hosts <= 2 else ring.inter_GBps)
    if protocol == "LL":
        return min(job.ll_max, bus * float(job.t["ring_ll_share"]))
    if protocol == "LL128":
        return min(bus * 0.92, ring.num_channels * job.cap("ring_ll128_per_channel_GBps"))
    return bus


def _tree_GBps(job: _Job, protocol: str) -> float:
    tree = job.graphs.tree
    bus = tree.num_channels * (tree.intra_GBps if job.hosts <= 2 else tree.inter_GBps)
    bus = min(bus * 0.92, tree.num_channels * job.cap("tree_per_channel_GBps"))
    if protocol == "LL":
        return min(bus / 3.8, job.ll_max)
    if protocol == "LL128":
        return min(
            bus * (7 / 9 if job.hosts == 1 else 120 / 128), tree.num_channels * job.cap("tree_ll128_per_channel_GBps")
        )
    return bus


def _nvls_GBps(job: _Job, algorithm: str) -> float:
    nvls, ppn = job.graphs.nvls, job.system.ranks_per_island
    if nvls is None or nvls.num_channels < 2:
        return 0.0
    if not job.t["nvls_from_heads"]:
        inter = nvls.inter_GBps if algorithm == "NVLS" or job.hosts <= 2 else nvls.inter_GBps / 2
        return nvls.num_channels * (nvls.intra_GBps if job.hosts == 1 else min(nvls.intra_GBps, inter))
    efficiency = float(job.t["nvls_efficiency"][job.system.facts.generation])
    intra = nvls.intra_GBps * efficiency * (nvls.num_channels - 1) / nvls.num_channels
    intra *= 2.0 if job.op == "all_reduce" else (ppn - 1) / ppn
    if job.hosts == 1:
        return nvls.num_channels * intra
    inter = nvls.inter_GBps * (2 if job.hosts <= 2 and algorithm == "NVLSTree" else 1)
    cap = job.cap("nvlstree_per_channel_GBps") if algorithm == "NVLSTree" else math.inf
    return nvls.num_channels * min(intra, inter, cap)


def _collnet_GBps(job: _Job, algorithm: str) -> float:
    ring, ppn = job.graphs.ring, job.system.ranks_per_island
    if algorithm == "CollNetChain":
        return ring.num_channels * ring.intra_GBps
    if job.op in ("all_gather", "reduce_scatter"):
        return ppn * min(ring.intra_GBps, 0.9 * ring.inter_GBps)
    factor = ppn / ring.num_channels
    factor -= (factor - 1) / 2
    return ring.num_channels * ring.intra_GBps / factor * (0.85 if job.system.facts.sm >= 90 else 1.0)


def _busbw_GBps(job: _Job, algorithm: str, protocol: str) -> float:
    if algorithm == "Ring":
        return _ring_GBps(job, protocol)
    if algorithm == "Tree":
        return _tree_GBps(job, protocol)
    if protocol != "Simple":
        return 0.0
    if algorithm in ("NVLS", "NVLSTree"):
        return _nvls_GBps(job, algorithm)
    if algorithm == "PAT":
        return 0.75 * _ring_GBps(job, "Simple")
    return _collnet_GBps(job, algorithm)


def _algbw_GBps(job: _Job, algorithm: str, protocol: str) -> float:
    bus = _busbw_GBps(job, algorithm, protocol)
    n = job.system.num_ranks
    if algorithm != "Ring" and job.op in ("all_gather", "reduce_scatter"):
        return bus
    if algorithm == "NVLSTree" and job.t["nvlstree_linear"]:
        return bus * 0.70 * job.hosts / (2 * (job.hosts - 1))
    if algorithm in ("NVLS", "NVLSTree") and not job.t["nvls_from_heads"]:
        return bus * 5 / 6
    return bus * (n / num_steps(job.op, n) if algorithm in ("Ring", "NVLS", "NVLSTree") else 0.5)


def _latency_us(job: _Job, algorithm: str, protocol: str) -> float:
    t, p, system = job.t, PROTOCOLS.index(protocol), job.system
    hosts, n = job.hosts, system.num_ranks
    ppn = n // hosts
    inside = t["nvlink_us" if system.nvlink_GBps else "pci_us"][algorithm][p]
    net = t["net_us"]["Tree" if ppn == 1 else algorithm][p] + system.reported_us * (2 if protocol == "Simple" else 1)
    base, depth = t["base_us"][algorithm][p], math.floor(math.log2(hosts))
    if algorithm == "Ring":
        return float(base + _ring_latency_us(job, protocol, inside, net))
    if algorithm == "Tree":
        return float(base + 2 * ((ppn - 1) * inside + depth * net))
    if algorithm == "CollNetDirect":
        return float(base + 2 * (min(1, ppn - 1) * inside + (ppn - 1) * 0.4) + net)
    if algorithm == "CollNetChain":
        return float(base + 2 * (ppn - 1) * inside + net)
    if algorithm == "NVLS":
        return float(inside + (net if hosts > 1 else 0))
    if algorithm == "NVLSTree":
        return float(base + inside + 2 * (hosts - 1 if t["nvlstree_linear"] else depth) * net)
    return float(base + depth * net / 3.5 + n * 2.8)


def _ring_latency_us(job: _Job, protocol: str, inside: float, net: float) -> float:
    system, n = job.system, job.system.num_ranks
    if job.op in ("broadcast", "reduce"):
        hop = net if job.hosts > 1 else inside
        if protocol == "Simple":
            hop = job.t["net_us" if job.hosts > 1 else "nvlink_us"]["Tree"][2]
        return float(num_steps(job.op, n) * hop)
    inter = inter_steps(job.op, job.hosts)
    if inter and job.op == "all_reduce":
        inter += int(job.t["extra_inter_steps"])
    if job.hosts > 1:
        inside = max(inside, system.post_us * (3 if protocol == "Simple" else 1))
    return float((num_steps(job.op, n) - inter) * inside + inter * net)


def believe(system: NcclSystem, op: str) -> dict[tuple[str, str], BeliefCell]:
    """Return NCCL's table for one operation: latency and algorithm bandwidth of every pair it could consider."""
    job = _Job(system, search(system), op, table(system.nccl))
    cells = {}
    gathers = op in ("all_gather", "reduce_scatter")
    for algorithm in job.t["gather_algorithms"] if gathers else _ALGORITHMS_OF[op]:
        for protocol in PROTOCOLS:
            algbw = 0.0 if algorithm == "NVLSTree" and job.hosts == 1 else _algbw_GBps(job, algorithm, protocol)
            if algbw > 0:
                cells[algorithm, protocol] = BeliefCell(_latency_us(job, algorithm, protocol), algbw)
    return cells


def believed_us(
    system: NcclSystem, op: str, cells: dict[tuple[str, str], BeliefCell], sizes: Floats
) -> dict[tuple[str, str], Floats]:
    """Return the time NCCL believes each pair would take at each size, corrections included."""
    t, graphs = table(system.nccl), search(system)
    per_slot = sizes / (graphs.real_channels * system.num_ranks)
    out = {}
    for (algorithm, protocol), cell in cells.items():
        latency: Floats | float = cell.latency_us
        algbw: Floats | float = cell.algbw_GBps
        if algorithm == "Tree" and op == "all_reduce":
            algbw = algbw * _tree_correction(t["tree_correction"][PROTOCOLS.index(protocol)], sizes)
        if (algorithm, protocol) == ("Ring", "Simple") and system.num_islands > 1 and op == "all_reduce":
            latency = latency * np.where(per_slot >= 64, 1.9 if system.facts.sm < 80 else 1.4, 1.0)
        out[algorithm, protocol] = np.asarray(latency + sizes / (1e3 * algbw), dtype=np.float64)
    return out


def _tree_correction(factors: list[float], sizes: Floats) -> Floats:
    index = np.floor(np.log2(np.maximum(sizes // 64, 1))).astype(int)
    padded = np.array([*factors, 1.0])
    usable = (index < len(factors)) & (sizes >= 64)
    return np.where(usable, padded[np.minimum(index, len(factors))], 1.0)
