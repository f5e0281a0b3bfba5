"""What a program of syncline's own should take on a network by the flow model, and between which times that may lie.

A cluster file that was calibrated says more, more surely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from syncline.describe.own_data import own_data
from syncline.program import Placement, Program, lower
from syncline.schedule import FAMILIES, Kind, build, verify
from syncline.sim.emulate.emulation import HostCosts, HostLinks, script_of, wiring_of_fabric
from syncline.sim.emulate.emulation import predict as emulated_s
from syncline.sim.flow.estimate import Estimate, estimate, over_seeds
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import WiredProgram, wire

NUM_SEEDS = 7
MAX_FLOWS_FOR_SEEDS = 20_000


@dataclass(frozen=True)
class ProgramTime:
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


def intervals() -> Any:
    """Return how far runs were seen to lie from the flow model."""
    return own_data("sim", "data/flow_interval.yaml")


class ProgramPricer:
    """Programs on one placement and network."""

    def __init__(self, placement: Placement, options: NetworkOptions | None = None) -> None:
        self.fabric = placement.fabric
        self.placement = placement
        self.options = options or NetworkOptions()
        self.calibration = self.fabric.spec.calibration

    @cached_property
    def network(self) -> FlowNetwork:
        """The network that flows cross."""
        return FlowNetwork(self.fabric, self.options)

    def ring_like(self, kind: Kind) -> Program:
        """Return the program that gloo's or MPI's own collective most resembles."""
        name = "ring" if kind in FAMILIES["ring"].kinds else "direct"
        schedule = build(name, self.placement.num_ranks, kind=kind)
        return replace(lower(verify(schedule), self.placement), name=f"as {name}")

    def at(self, wired: WiredProgram, size: int, *, widen: float = 1.0) -> ProgramTime:
        """Return what a program takes at a size, with its interval."""
        found = estimate(wired, self.network, size)
        time_s, source = self._fitted_s(wired.program, size, found)
        low, high = self._factors(time_s, widen)
        best, worst = self._over_paths(wired, size, found)
        best, worst = (end / found.time_s * time_s for end in (best, worst))
        line = self.network.capacity_Bps[found.limiting_link]
        if found.limiting_link < self.network.num_links:
            line = self.fabric.links.rate_Bps[found.limiting_link]
        return ProgramTime(
            size, time_s, best * low, worst * high, found.limiting_link_name,
            float(found.link_bytes[found.limiting_link]), float(line), source, found.ignores,
        )  # fmt: skip

    def wired(self, program: Program) -> WiredProgram:
        """Return a program joined to the links its messages cross."""
        return wire(program, self.network)

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
