"""Programs and traffic beside other people's: background load that goes on until they are done.

outcome = simulate_loaded(network, [Job(program, 1e6)], options, Background(0.3, WEB_SEARCH), expected_s=1e-3)
outcome.job_end_s(0), outcome.tally(0), outcome.tally(1)     # the background is the last load
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.errors import SimulationError
from syncline.sim.packet.network import PacketNetwork
from syncline.sim.packet.options import LinkChange, PacketOptions
from syncline.sim.packet.outcome import Outcome, Progress
from syncline.sim.packet.posting import PacketJob
from syncline.sim.packet.run import simulate
from syncline.sim.packet.traffic import SIZES, MessageSizes, Traffic, background

_TRIES = 8


@dataclass(frozen=True)
class RandomLoad:
    """Messages of random sizes between random NICs that fill `load` of the access links."""

    load: float
    sizes: MessageSizes
    traffic_class: int = 0


def read_background(text: str) -> RandomLoad:
    """Read "0.3" or "0.3:storage" as a load and a distribution of message sizes.

    >>> read_background("0.3:storage").load
    0.3
    """
    load, _, name = text.partition(":")
    name = name or "websearch"
    if name not in SIZES:
        raise SimulationError(f'no distribution of sizes is called "{name}".', hint=f"One of: {', '.join(SIZES)}.")
    try:
        found = float(load)
    except ValueError:
        found = -1.0
    if not 0 < found < 1:
        raise SimulationError(f'background "{text}" has no load between 0 and 1.', hint="Write 0.3 or 0.3:websearch.")
    return RandomLoad(found, SIZES[name])


def simulate_loaded(
    network: PacketNetwork,
    loads: Sequence[PacketJob | Traffic],
    options: PacketOptions,
    beside: RandomLoad | None,
    expected_s: float,
    *,
    others: Sequence[Traffic] = (),
    changes: Sequence[LinkChange] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run loads to their end beside other traffic and a background, which may go on.

    The background is drawn anew, longer, when the loads take longer than expected.
    """
    mine = range(len(loads)) if others or beside else ()
    if beside is None:
        return simulate(network, [*loads, *others], options, changes=changes, until_done=mine, progress=progress)
    duration = 2 * expected_s
    for _ in range(_TRIES):
        drawn = background(network.fabric, beside.load, duration, sizes=beside.sizes, seed=options.seed)
        outcome = simulate(
            network,
            [*loads, *others, drawn.in_class(beside.traffic_class)],
            options,
            changes=changes,
            until_s=duration,
            until_done=mine,
            progress=progress,
        )
        if outcome.done(*mine) or outcome.state != "running":
            return outcome
        duration *= 4
    return outcome


def least_s(network: PacketNetwork, traffic: Traffic) -> float:
    """Return the time that the busiest end of some traffic needs at the rate of its link: a bound."""
    ends = np.concatenate((traffic.src, traffic.dst + len(network.fabric.devices)))
    most = float(np.bincount(ends, weights=np.tile(traffic.size_bytes, 2)).max(initial=0.0))
    return float(traffic.start_s.max(initial=0.0)) + most / network.access_Bps + network.rtt_s(4096)
