"""Drills: faults planted in a simulated fabric, to see whether the tournament finds them.

    drill = Drill(fabric, seed=1)
    fault = drill.plant("host-tx")                 # the part that is slow now, and by how much
    result = run(drill.crossings(known=True), drill.play)
    fault.part in [s.part.name for s in result.attribution.suspects]

Flows of a round share links fairly (max-min) on the faulty fabric, on the path that a hash of this drill's seed gives
them; what is measured carries noise. A flow's rate is taken as constant while it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.bench.incidence import Crossings, PartKind, SuspectPart
from syncline.bench.pairing import Match, Round
from syncline.fabric import Fabric
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.maxmin import max_min_rates
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

Floats = NDArray[np.float64]
FACTORS = (0.1, 0.75)
"""Between which shares of its rate a planted fault leaves a part."""


@dataclass(frozen=True)
class PlantedFault:
    """A part that is slow in a drill, and the share of its rate that is left."""

    part: SuspectPart
    factor: float


class Drill:
    """One simulated fabric with faults, noise and a hash of its own."""

    def __init__(self, fabric: Fabric, *, seed: int = 0, noise: float = 0.03) -> None:
        self.fabric = fabric
        self.noise = noise
        self.rng = np.random.default_rng(seed)
        self.capacity = fabric.links.rate_Bps.copy()
        host = fabric.devices.host[fabric.gpus]
        first = np.unique(host, return_index=True)[1]
        self.device = fabric.gpus[first]
        self._network = FlowNetwork(fabric, NetworkOptions(routing="ecmp", transport="ideal", seed=seed))
        self.planted: list[PlantedFault] = []

    @property
    def num_hosts(self) -> int:
        return len(self.device)

    def crossings(self, *, known: bool) -> Crossings:
        """Return what the attribution is told of the paths: those taken, or only where they may go."""
        return Crossings(self.fabric, self.device.tolist(), self._taken if known else None)

    def parts(self) -> tuple[SuspectPart, ...]:
        """Return everything that can be slow."""
        pairs = [Match(a, b) for a in range(self.num_hosts) for b in range(self.num_hosts) if a != b]
        return Crossings(self.fabric, self.device.tolist()).incidence(pairs).parts

    def plant(
        self, kind: PartKind | str, parts: Sequence[SuspectPart] = (), factor: float | None = None
    ) -> PlantedFault:
        """Slow down a part of this kind, drawn at random, and return it."""
        known = [part for part in parts or self.parts() if part.kind == kind]
        part = known[int(self.rng.integers(len(known)))]
        left = float(self.rng.uniform(*FACTORS)) if factor is None else factor
        # A switch that is slow holds back each of its ports, so that flows get the same share wherever they go.
        self.capacity[list(part.links)] *= left
        self.planted.append(PlantedFault(part, left))
        return self.planted[-1]

    def play(self, round_: Round) -> list[float]:
        """Return the rate that each flow of a round gets, with noise."""
        rate = max_min_rates(self.capacity, Paths.of(self._paths(round_))).rate_Bps
        noisy: Floats = rate * np.exp(self.rng.normal(0.0, self.noise, len(rate)))
        return [float(one) for one in noisy]

    def _paths(self, matches: Sequence[Match]) -> list[list[int]]:
        return [self._taken[match.src, match.dst] for match in matches]

    @cached_property
    def _taken(self) -> dict[tuple[int, int], list[int]]:
        """The path of every flow, as this drill's hash draws it."""
        pairs = [(a, b) for a in range(self.num_hosts) for b in range(self.num_hosts) if a != b]
        src, dst = (self.device[[pair[end] for pair in pairs]].astype(np.int64) for end in (0, 1))
        paths = self._network.wire(src, dst, np.zeros(len(pairs), dtype=np.int64)).paths
        return {pair: paths.link[paths.start[i] : paths.start[i + 1]].tolist() for i, pair in enumerate(pairs)}
