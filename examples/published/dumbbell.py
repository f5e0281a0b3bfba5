"""The dumbbell: senders and receivers either side of one trunk, the first test of any congestion control.

found = dumbbell_trial(PacketOptions("dctcp"), Dumbbell(num_flows=4))
found.utilisation, found.jain, found.mean_queue_bytes, found.shares
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric import build
from syncline.fabric.spec import ClusterSpec
from syncline.sim.packet.network import Floats, PacketNetwork, packet_network
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.outcome import Outcome
from syncline.sim.packet.run import Watching, simulate
from syncline.sim.packet.traffic import messages


@dataclass(frozen=True)
class Dumbbell:
    """So many flows, each from a host of its own over the trunk to a host of its own.

    `far` makes the cables of single senders so many times as long, `detours` puts so many more switches in their way,
    `start_s` lets flows begin late (one a flow each).
    """

    num_flows: int = 2
    access_Bps: float = 12.5e9
    trunk_Bps: float = 12.5e9
    latency_s: float = 1e-6
    far: tuple[float, ...] = ()
    start_s: tuple[float, ...] = ()
    num_trunk_switches: int = 2
    detours: tuple[int, ...] = ()

    def network(self) -> PacketNetwork:
        """Return the network: hosts, the switches in a row, the cables between."""
        return _network(self)

    def sender(self, flow: int) -> int:
        """Return the device from which a flow is sent."""
        return int(self.network().fabric.nics[flow])

    def receiver(self, flow: int) -> int:
        """Return the device at which a flow ends."""
        return int(self.network().fabric.nics[self.num_flows + flow])

    @property
    def trunk_link(self) -> int:
        """The fabric's link over the trunk, towards the receivers."""
        network = self.network()
        return int(network.link[np.flatnonzero((network.src == 0) & (network.dst == 1))[0]])


@lru_cache(maxsize=64)
def _network(shape: Dumbbell) -> PacketNetwork:
    if shape.num_flows < 1 or shape.num_trunk_switches < 2:
        raise SimulationError("a dumbbell has at least one flow and two switches.")
    last = shape.num_trunk_switches - 1
    stretch = [*shape.far, *(1.0 for _ in range(shape.num_flows - len(shape.far)))]
    cables: list[dict[str, object]] = []
    extra: list[str] = []
    for flow in range(shape.num_flows):
        way = [f"detour-{flow}-{i}" for i in range(shape.detours[flow] if flow < len(shape.detours) else 0)]
        extra += way
        rows = [(_nic(shape, flow), way[0] if way else "switch-0", stretch[flow])]
        rows += [(a, b, 1.0) for a, b in pairwise([*way, "switch-0"])] if way else []
        rows.append((_nic(shape, shape.num_flows + flow), f"switch-{last}", 1.0))
        cables += [
            {"a": a, "b": b, "rate": shape.access_Bps, "latency": shape.latency_s * times} for a, b, times in rows
        ]
    cables += [
        {"a": f"switch-{i}", "b": f"switch-{i + 1}", "rate": shape.trunk_Bps, "latency": shape.latency_s}
        for i in range(last)
    ]
    switches = [{"name": f"switch-{i}", "level": i + 1} for i in range(last + 1)]
    switches += [{"name": name, "level": 1} for name in extra]
    spec = {
        "name": "dumbbell", "hosts": 2 * shape.num_flows, "host": {"gpu": "H100", "gpus": 1, "nics": 1},
        "network": {"topology": "explicit", "switches": switches, "cables": cables},
    }  # fmt: skip
    return packet_network(build(ClusterSpec.model_validate(spec)))


def _nic(shape: Dumbbell, host: int) -> str:
    width = max(2, len(str(2 * shape.num_flows - 1)))
    return f"host-{host:0{width}d}/nic-0"


@dataclass(frozen=True, eq=False)
class DumbbellResult:
    """What flows of unlimited length got of the trunk between two moments."""

    outcome: Outcome
    goodput_Bps: Floats
    """Of each flow."""
    utilisation: float
    """What of the trunk the flows' packets filled, headers included."""
    jain: float
    mean_queue_bytes: float
    peak_queue_bytes: float

    @property
    def shares(self) -> Floats:
        """What each flow had of all that was delivered."""
        return self.goodput_Bps / max(float(self.goodput_Bps.sum()), 1e-30)


def jain_index(values: Sequence[float] | Floats) -> float:
    """Return Jain's fairness index: 1 when all have the same, 1/n when one has all.

    >>> jain_index([1.0, 1.0]), jain_index([1.0, 0.0])
    (1.0, 0.5)
    """
    found = np.asarray(values, np.float64)
    return float(found.sum() ** 2 / max(len(found) * (found**2).sum(), 1e-300))


def dumbbell_trial(
    options: PacketOptions, shape: Dumbbell | None = None, *, settle_s: float = 5e-3, measure_s: float = 10e-3
) -> DumbbellResult:
    """Run long flows over a dumbbell and return what they got once they had settled."""
    shape = shape or Dumbbell()
    network = shape.network()
    count = shape.num_flows
    until_s = settle_s + measure_s + max(shape.start_s, default=0.0)
    start = np.array([*shape.start_s, *(0.0 for _ in range(count - len(shape.start_s)))])
    enough = 2 * until_s * shape.trunk_Bps
    load = messages(
        [shape.sender(i) for i in range(count)], [shape.receiver(i) for i in range(count)], enough, start
    )  # fmt: skip
    step_s = measure_s / 1000
    outcome = simulate(
        network, [load], options, watching=Watching(step_s, (shape.trunk_link,), tuple(range(count))), until_s=until_s
    )
    sampled = outcome.sampled
    assert sampled is not None
    rows = sampled.time_s >= until_s - measure_s
    span_s = float(np.ptp(sampled.time_s[rows]))
    goodput = np.ptp(sampled.flow_bytes[rows], axis=0) / span_s
    queue = sampled.queue_bytes[rows, 0]
    used = float(np.ptp(sampled.wire_bytes[rows, 0])) / span_s / shape.trunk_Bps
    return DumbbellResult(
        outcome, goodput, used, jain_index(goodput), float(queue.mean()), float(outcome.ports["peak_bytes"].max())
    )
