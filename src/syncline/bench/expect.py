"""What a collective should take on this topology, how sure that is, and which link says so.

    oracle = Oracle(fabric, placement, NetworkOptions(transport="tcp"))
    oracle.program(program, sizes)            # a program of syncline's own: the flow model
    oracle.vendor(Kind.ALL_REDUCE, sizes, backend="nccl")       # the model of NCCL

An expectation is an interval, never a point alone: a verdict that is harder than the model is sure would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from syncline.describe.own_data import own_data
from syncline.describe.plain import JsonObject
from syncline.errors import SimulationError, SynclineError
from syncline.fabric import Fabric
from syncline.program import Placement, Program, lower
from syncline.schedule import FAMILIES, Kind, build, verify
from syncline.sim.emulate.emulation import HostCosts, HostLinks, script_of, wiring_of_fabric
from syncline.sim.emulate.emulation import predict as emulated_s
from syncline.sim.flow.estimate import Estimate, estimate, over_seeds
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import WiredProgram, wire
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import IGNORES as NCCL_IGNORES
from syncline.sim.nccl.predict import PredictedRow, predict
from syncline.sim.nccl.wire import wires

NUM_SEEDS = 7
MAX_FLOWS_FOR_SEEDS = 20_000
NCCL_KINDS = (
    Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.REDUCE, Kind.SEND_RECV,
)  # fmt: skip

Z_75, Z_95 = 0.6745, 1.645
"""Quantiles of the normal distribution."""
STALLED = 1.5
"""Times the prediction: what published systems stay below is not cut further."""


@dataclass(frozen=True)
class Expectation:
    """The time one size should take, between which times it may lie, and what the limiting link carries meanwhile."""

    size_bytes: int
    time_s: float
    low_s: float
    high_s: float
    link: str
    link_bytes: float
    line_Bps: float
    source: str
    ignores: tuple[str, ...] = ()
    chosen: str = ""
    """The algorithm and protocol that the library is predicted to choose at this size."""
    note: str = ""

    @property
    def origin(self) -> str:
        """Where the prediction comes from, with what was chosen at this size."""
        return "; ".join(filter(None, [", ".join(filter(None, [self.source, self.chosen])), self.note]))

    def wire_Bps(self, time_s: float) -> float:
        """Return what the limiting link carried if the collective took `time_s`."""
        return self.link_bytes / time_s if time_s > 0 else 0.0

    def to_json(self) -> JsonObject:
        """Return the expectation as plain values."""
        return {
            "time_s": self.time_s, "low_s": self.low_s, "high_s": self.high_s, "limiting_link": self.link,
            "link_line_Bps": self.line_Bps, "source": self.origin, "ignores": list(self.ignores),
        }  # fmt: skip


def intervals() -> Any:
    """Return how far runs were seen to lie from the flow model."""
    return own_data("bench", "data/flow_interval.yaml")


class Oracle:
    """Expectations on one cluster, placement and network; a cluster file that was calibrated says more, more surely."""

    def __init__(self, fabric: Fabric, placement: Placement, options: NetworkOptions | None = None) -> None:
        self.fabric = fabric
        self.placement = placement
        self.options = options or NetworkOptions()
        self.calibration = fabric.spec.calibration

    @cached_property
    def network(self) -> FlowNetwork:
        """The network that flows cross."""
        return FlowNetwork(self.fabric, self.options)

    def program(self, program: Program, sizes: Sequence[int], *, widen: float = 1.0) -> list[Expectation]:
        """Return what a program should take at each size, by the flow model."""
        wired = wire(program, self.network)
        return [self._flow(wired, size, widen) for size in sizes]

    def _flow(self, wired: WiredProgram, size: int, widen: float) -> Expectation:
        found = estimate(wired, self.network, size)
        time_s, source = self._fitted_s(wired.program, size, found)
        low, high = self._factors(time_s, widen)
        best, worst = self._over_paths(wired, size, found)
        best, worst = (end / found.time_s * time_s for end in (best, worst))
        line = self.network.capacity_Bps[found.limiting_link]
        if found.limiting_link < self.network.num_links:
            line = self.fabric.links.rate_Bps[found.limiting_link]
        return Expectation(
            size, time_s, best * low, worst * high, found.limiting_link_name,
            float(found.link_bytes[found.limiting_link]), float(line), source, found.ignores,
        )  # fmt: skip

    def _factors(self, time_s: float, widen: float) -> tuple[float, float]:
        table = intervals()
        band = "short" if time_s < float(table["short_s"]) else "long"
        low, high = table["calibrated" if self.calibration else "described"][band]
        if self.calibration:
            worst = self.calibration.worst_error
            low, high = min(float(low), 1 - worst), max(float(high), 1 + worst)
        return max(float(low), 0.05) / widen, float(high) * widen

    def _fitted_s(self, program: Program, size: int, found: Estimate) -> tuple[float, str]:
        """Return the time, with the host costs that the cluster file remembers where it has some, and who says so."""
        fitted = self.calibration
        if fitted is None or self._wiring is None:
            return found.time_s, f"flow model, {found.method}"
        costs = HostCosts(fitted.latency_s, fitted.post_s, fitted.add_s_per_byte, fitted.start_s, fitted.efficiency)
        return emulated_s(script_of(program, size, self._wiring), costs), "flow model with host costs fitted here"

    @cached_property
    def _wiring(self) -> HostLinks | None:
        if self.calibration is None or self.calibration.ranks != self.placement.num_ranks:
            return None  # costs belong to a number of ranks on a machine
        return wiring_of_fabric(self.placement)

    def _over_paths(self, wired: WiredProgram, size: int, found: Estimate) -> tuple[float, float]:
        """Return the fastest and slowest of several draws of ECMP's hash: which one the switches have is not known."""
        if self.options.routing != "ecmp" or wired.num_flows > MAX_FLOWS_FOR_SEEDS or not self._has_choices:
            return found.time_s, found.time_s
        spread = over_seeds(wired.program, self.network, size, range(NUM_SEEDS))
        return min(found.time_s, float(spread.time_s.min())), max(found.time_s, float(spread.time_s.max()))

    @cached_property
    def _has_choices(self) -> bool:
        """Whether any two hosts are joined by more than one shortest path: only then a hash has something to choose."""
        levels = self.fabric.devices.level[self.fabric.switches]
        return bool(len(levels)) and int((levels >= 2).sum()) > 1

    def vendor(self, kind: Kind, sizes: Sequence[int], *, backend: str) -> list[Expectation]:
        """Return what the backend's own collective should take: NCCL by its model, the others as a ring."""
        if backend in ("nccl", "rccl"):
            return self.nccl(kind, sizes)
        return self.program(self._ring_like(kind), sizes, widen=float(intervals()["vendor_widen"]))

    def nccl(self, kind: Kind, sizes: Sequence[int], *, num_ranks: int | None = None) -> list[Expectation]:
        """Return what NCCL should take on the first hosts of the cluster, whole hosts at a time."""
        ranks = self.placement.num_ranks if num_ranks is None else num_ranks
        per_host = int(np.bincount(self.fabric.gpu_host).max())
        if kind not in NCCL_KINDS:
            raise SimulationError(f"NCCL's {kind} is not modelled.", hint=f"Known: {', '.join(NCCL_KINDS)}.")
        hosts = max(1, -(-ranks // per_host))
        system = from_fabric(self.fabric, num_hosts=hosts, gpus_per_host=ranks if hosts == 1 else 0)
        if system.num_ranks != ranks:
            raise SimulationError(
                f"NCCL is modelled on whole hosts of {per_host} GPUs; {ranks} ranks do not fill whole hosts."
            )
        prediction = predict(system, kind.value, [float(size) for size in sizes])
        found = []
        for row, on in zip(prediction.rows(), wires(prediction, self.fabric), strict=True):
            line = on.rate_Bps / on.utilisation if on.utilisation else 0.0
            found.append(Expectation(
                row.size_bytes, row.time_s, row.low_s, _healthy_s(row), on.link,
                on.rate_Bps * row.time_s, line, "model of NCCL", NCCL_IGNORES, row.algorithm,
                "; ".join(prediction.unverified),
            ))  # fmt: skip
        return found

    def _ring_like(self, kind: Kind) -> Program:
        """Return the program that a backend's own collective most resembles."""
        name = "ring" if kind in FAMILIES["ring"].kinds else "direct"
        options = {"peer": 1} if kind is Kind.SEND_RECV else {}
        schedule = build(name, self.placement.num_ranks, kind=kind, **options)
        return replace(lower(verify(schedule), self.placement), name=f"as {name}")


def _healthy_s(row: PredictedRow) -> float:
    """Return the longest that a system in order takes.

    Nine of ten published systems lie below `high_s`, and among them some that stall, which is what a verdict looks for.
    The middle half does not know those: its upper end, carried on as a normal distribution's 95th percentile (but no
    less than `STALLED`), is used where that is less.
    """
    half = math.log(row.high50_s / row.time_s) / Z_75
    return min(row.high_s, row.time_s * max(STALLED, math.exp(Z_95 * half)))


def expectations(oracle: Oracle | None, program: Program | None, kind: Kind, sizes: Sequence[int], backend: str
                 ) -> tuple[list[Expectation | None], str]:  # fmt: skip
    """Return what each size should take, or nothing and the reason why nothing can be said."""
    if oracle is None:
        return [None] * len(sizes), "no cluster was given (--cluster), so nothing is predicted"
    try:
        found = oracle.vendor(kind, sizes, backend=backend) if program is None else oracle.program(program, sizes)
        return list(found), ""
    except SynclineError as error:
        return [None] * len(sizes), error.message
