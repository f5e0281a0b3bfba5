"""Lossless, no failure, no cycle of buffers: everything arrives and nothing is dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.packet.packet_fabrics import leaf_spine, star

from syncline.sim.packet import PacketOptions, all_to_all, messages, senders, simulate


def test_a_resume_does_not_overtake_its_pause() -> None:
    """All pairs of 64 hosts used to stall with 945 of 4,032 messages: both signals in one picosecond, in any order."""
    network = leaf_spine(64, 8)
    options = PacketOptions("roce", buffer_bytes=3e6, headroom_bytes=2_500_000, switching="store-and-forward")
    outcome = simulate(network, [all_to_all(network.fabric, 65536)], options, until_s=1.0)
    assert (outcome.state, outcome.counters["tasks_done"]) == ("finished", 4032)
    assert outcome.counters["pauses"] > 1000


@settings(max_examples=60, deadline=None)
@given(
    transport=st.sampled_from(["roce", "line-rate", "dcqcn", "dcqcn-hpcc", "hpcc", "timely", "infiniband"]),
    small=st.booleans(), seed=st.integers(0, 10_000), payload=st.sampled_from([1000, 4096, 9000]),
    spare=st.sampled_from([0.3e6, 1e6, 8e6]), pause=st.sampled_from([0, 10_000, 30_000]), cut=st.booleans(),
    pairs=st.sampled_from([1, 4]),
)  # fmt: skip
def test_everything_arrives_and_nothing_is_dropped(
    transport: str, small: bool, seed: int, payload: int, spare: float, pause: int, cut: bool, pairs: int
) -> None:
    network = star() if small else leaf_spine()
    flight = network.rate_Bps * network.latency_ps * 2e-12 + 3 * (payload + 200)
    headroom = float(np.bincount(network.dst[network.dst >= 0], weights=flight[network.dst >= 0]).max())
    options = PacketOptions(
        transport, seed=seed, payload_bytes=payload, buffer_bytes=headroom * 1.2 + spare, pause_bytes=pause,
        queue_pairs=pairs, switching="cut-through" if cut else "store-and-forward",
    )  # fmt: skip
    random = np.random.default_rng(seed)
    ends = senders(network.fabric)
    src = random.integers(0, len(ends), 80)
    dst = np.where(random.random(80) < 0.5, ends[0], ends[(src + random.integers(1, len(ends), 80)) % len(ends)])
    keep = ends[src] != dst
    load = messages(
        ends[src][keep], dst[keep], random.integers(1, 300_000, 80)[keep], random.uniform(0, 5e-6, 80)[keep]
    )
    outcome = simulate(network, [load], options, until_s=2.0)
    counters = outcome.counters
    assert outcome.state == "finished"
    assert (counters["drops"], counters["lossless_drops"], counters["resent_packets"]) == (0, 0, 0)
    assert counters["delivered_bytes"] == load.size_bytes.sum()
    assert outcome.utilisation().max() <= 1.0


@pytest.mark.parametrize("seed", range(12))
def test_no_port_is_busier_than_all_the_time(seed: int) -> None:
    """What has its place in line used to be counted as sent: 1.04 in runs that were stopped."""
    network = star()
    ends = senders(network.fabric)
    load = messages(ends[1:], ends[0], 40e6)
    outcome = simulate(network, [load], PacketOptions("ndp", seed=seed), until_s=(1 + seed) * 0.7e-6)
    assert outcome.utilisation().max() <= 1.0
    sent = outcome.ports["wire_bytes"] - outcome.ports["booked_ps"] / 1e12 * network.rate_Bps
    assert (sent <= outcome.now_s * network.rate_Bps * 1.002 + 1).all()
