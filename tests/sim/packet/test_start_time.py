"""The same traffic started at any time gives the same result, for every transport."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import leaf_spine

from syncline.sim.packet import PacketOptions, TransportSet, messages, senders, simulate, transport_sets

SLOTTED = "slotted"


@pytest.mark.parametrize("name", [name for name in transport_sets() if name != SLOTTED])  # slots are moments by design
def test_a_later_start_shifts_everything_and_changes_nothing(name: str) -> None:
    network = leaf_spine()
    ends = senders(network.fabric)
    found: TransportSet = transport_sets()[name]
    lossy = {} if found.lossless or found.credits else {"loss": 1e-3}
    options = PacketOptions(name, buffer_bytes=20e6, **lossy)  # type: ignore[arg-type]
    runs = []
    for later_s in (0.0, 3e-6, 1.2345e-3):
        load = messages(ends[4:12], ends[0], 400_000, later_s + np.arange(8) * 1e-6)
        runs.append(simulate(network, [load], options))
    first = runs[0]
    for other in runs[1:]:
        assert np.allclose(other.times_s(0), first.times_s(0), rtol=1e-9)
        same = {key: value for key, value in first.counters.items() if key != "events"}
        assert same == {key: value for key, value in other.counters.items() if key != "events"}


@pytest.mark.parametrize("gap_us", [20, 200])
def test_flowlets_count_the_first_packet_too(gap_us: int) -> None:
    network = leaf_spine()
    ends = senders(network.fabric)
    ways = []
    for later_s in (0.0, 1e-3):
        start = later_s + np.arange(30) * gap_us * 1e-6
        load = messages(ends[0], ends[8], 8192, start, connections="shared")
        outcome = simulate(network, [load], PacketOptions("dcqcn", "flowlet"))
        ways.append(outcome.ports["packets"].tolist())
    assert ways[0] == ways[1]
