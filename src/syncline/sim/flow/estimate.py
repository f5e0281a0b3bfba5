"""One program alone: its time, its bandwidths, the link that limits it, and how the answer was found.

Bandwidth is nccl-tests' (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): algbw = size / time; busbw = algbw times a
factor that makes it comparable with link rates whatever the number of ranks: 2(n-1)/n for all-reduce, (n-1)/n for
all-gather, reduce-scatter and all-to-all, 1 for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric.fabric import DeviceKind
from syncline.program import Program
from syncline.schedule import Kind
from syncline.sim.analytic import bounds, busiest, link_need_s
from syncline.sim.bound import Bound, bound_of
from syncline.sim.flow.flow import IGNORES, FlowJob, simulate
from syncline.sim.flow.fold import MAX_TOGETHER, FoldedPrice, most_together, price
from syncline.sim.flow.routing import Floats, FlowNetwork
from syncline.sim.flow.wired import WiredProgram, wire

BARRIER_IGNORES = "drift between ranks (each round taken as a barrier: a bound)"
ANALYTIC_IGNORES = ("contention but on the busiest link", "queues", "host jitter", "reduction arithmetic")
_PARTS = frozenset({Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.ALL_TO_ALLV})


def bus_factor(kind: Kind, num_ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth."""
    if kind is Kind.ALL_REDUCE:
        return 2 * (num_ranks - 1) / num_ranks
    return (num_ranks - 1) / num_ranks if kind in _PARTS else 1.0


@dataclass(frozen=True, eq=False)
class Estimate:
    """The price of one program at one size. `link_bytes` is what each link of the network carried."""

    size_bytes: int
    time_s: float
    algorithm: str
    kind: Kind
    num_ranks: int
    method: str
    exact: bool
    limiting_link: int
    limiting_link_name: str
    wire_Bps: float
    utilisation: float
    link_bytes: Floats
    ignores: tuple[str, ...]
    chunks: int = 1
    bound_s: float = 0.0

    @property
    def algbw_Bps(self) -> float:
        return self.size_bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def busbw_Bps(self) -> float:
        return self.algbw_Bps * bus_factor(self.kind, self.num_ranks)

    def link_utilisation(self, network: FlowNetwork) -> Floats:
        """Return the share of its line rate that every link of the fabric carried on average."""
        carried = self.link_bytes[: network.num_links]
        room = network.fabric.links.rate_Bps * self.time_s
        return np.divide(carried, room, out=np.zeros(len(carried)), where=room > 0)


def estimate(
    program: Program | WiredProgram, network: FlowNetwork, size_bytes: int, *, level: str = "flow"
) -> Estimate:
    """Return what a program takes for a buffer of `size_bytes`, at level "flow" or "analytic" (a lower bound).

    A program that is wired already (`wire(program, network)`) is priced at many sizes without routing it again.
    """
    wired = program if isinstance(program, WiredProgram) else wire(program, network)
    if level == "analytic":
        return _described(
            wired, size_bytes, FoldedPrice(bounds(wired, size_bytes).lower_s, "bound", False), ANALYTIC_IGNORES
        )
    if level != "flow":
        raise SimulationError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow.")
    if not wired.single_path:
        crowd = most_together(wired)
        if crowd > MAX_TOGETHER:
            raise SimulationError(
                f"{crowd:,} flows in one round are too many to route adaptively, one by one.",
                hint="Use --routing spray, which adaptive routing comes close to.",
            )
        outcome = simulate([FlowJob(wired.program, size_bytes)], network)
        found = FoldedPrice(outcome.makespan_s, "flows", True)
        return _described(wired, size_bytes, found, IGNORES, outcome.course.link_bytes)
    found = price(wired, size_bytes)
    if wired.wires.whole is not None and found.time_s < bounds(wired, size_bytes).bandwidth_s:
        wired = wired.on_all_links  # rounds that overlap fill a link that each of them leaves room on
        found = price(wired, size_bytes)
    return _described(wired, size_bytes, found, IGNORES if found.exact else (*IGNORES, BARRIER_IGNORES))


def _described(
    wired: WiredProgram, size_bytes: int, found: FoldedPrice, ignores: tuple[str, ...], link_bytes: Floats | None = None
) -> Estimate:
    network = wired.network
    carried = wired.link_bytes(size_bytes) if link_bytes is None else link_bytes
    need_s = link_need_s(carried, network.capacity_Bps)
    link = busiest(need_s)
    if found.time_s < need_s[link] * (1 - 1e-9):
        raise SimulationError(f"{wired.program.name}: {found.time_s} s is faster than {network.link_name(link)} can be "
                              f"({need_s[link]} s).", hint="This is a bug of the simulator: report it.")  # fmt: skip
    floor = floor_s(wired, size_bytes)
    if found.time_s < floor * (1 - 1e-9):
        raise SimulationError(f"{wired.program.name}: {found.time_s} s is faster than this fabric can be ({floor} s).",
                              hint="This is a bug of the simulator: report it.")  # fmt: skip
    wire_Bps = float(carried[link] / found.time_s) if found.time_s > 0 else 0.0
    line = network.fabric.links.rate_Bps[link] if link < network.num_links else network.capacity_Bps[link]
    name = network.link_name(link) if carried[link] > 0 else ""  # a rank alone, or an empty buffer
    return Estimate(
        size_bytes, found.time_s, wired.program.name, wired.program.collective.kind, wired.program.num_ranks,
        found.method, found.exact, link, name, wire_Bps, wire_Bps / float(line), carried, ignores, bound_s=floor,
    )  # fmt: skip


def floor_s(wired: WiredProgram, size_bytes: float) -> float:
    """Return what no algorithm for this collective can beat on this fabric: ports, cuts and tiers (`sim/reach.py`)."""
    program = wired.program
    if program.num_ranks < 2 or program.collective.sizes:
        return 0.0
    key = "_bound"
    if key not in wired.__dict__:
        devices = np.sort(np.unique(program.placement.device))
        own = len(devices) == program.num_ranks and bool(
            (wired.network.fabric.devices.kind[devices] == DeviceKind.GPU).all()
        )
        reduces = getattr(getattr(program.steps[0], "proved", None), "schedule", None)
        in_network = reduces is not None and reduces.family == "in-network"
        kind = program.collective.kind
        wired.__dict__[key] = (
            Bound()
            if not own
            else bound_of(
                wired.network.fabric, kind, devices, in_network=in_network, to_next=program.collective.to_next
            )
        )
    bound: Bound = wired.__dict__[key]
    return bound.at(size_bytes * wired.codec.wire_ratio)


@dataclass(frozen=True, eq=False)
class HashSpread:
    """Times of one program over many seeds of the hash that spreads connections over paths."""

    time_s: Floats
    seeds: tuple[int, ...]

    def quantile_s(self, share: float) -> float:
        """Return the time that a share of the seeds does not exceed."""
        return float(np.quantile(self.time_s, share))

    def to_json(self) -> dict[str, float]:
        """Return the distribution in short."""
        return {
            "median_s": self.quantile_s(0.5),
            "p10_s": self.quantile_s(0.1),
            "p90_s": self.quantile_s(0.9),
            "worst_s": float(self.time_s.max()),
            "best_s": float(self.time_s.min()),
            "num_seeds": len(self.seeds),
        }


def over_seeds(program: Program, network: FlowNetwork, size_bytes: int, seeds: Iterable[int] = range(20)) -> HashSpread:
    """Return the times under ECMP hashing with many seeds: a distribution, not one draw."""
    chosen = tuple(seeds)
    times = [estimate(program, _reseeded(network, seed), size_bytes).time_s for seed in chosen]
    return HashSpread(np.array(times), chosen)


def _reseeded(network: FlowNetwork, seed: int) -> FlowNetwork:
    other = FlowNetwork(network.fabric, replace(network.options, seed=seed))
    other.__dict__["routes"] = network.routes  # distances do not depend on the seed
    return other
