"""Any configuration ends, accounts for every byte (the engine checks that itself), and repeats exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.sim.packet.packet_fabrics import dragonfly, fat_tree, leaf_spine, rails, star, torus

from syncline.errors import SimulationError
from syncline.sim.packet import LinkChange, PacketOptions, TrafficClass, messages, senders, simulate, transport_sets
from syncline.sim.packet.options import ROUTINGS

NETWORKS = (star, leaf_spine, fat_tree, dragonfly, rails, torus)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_every_configuration_ends_conserves_and_repeats(data: st.DataObject) -> None:
    network = data.draw(st.sampled_from(NETWORKS))()
    ends = senders(network.fabric)
    try:
        options = PacketOptions(
            transport=data.draw(st.sampled_from(sorted(transport_sets()))),
            routing=data.draw(st.sampled_from(ROUTINGS)),
            seed=data.draw(st.integers(0, 1000)),
            queue_pairs=data.draw(st.sampled_from([1, 1, 3])),
            payload_bytes=data.draw(st.sampled_from([256, 1434, 4096, 9000])),
            switching=data.draw(st.sampled_from(["store-and-forward", "cut-through"])),
            buffer_bytes=data.draw(st.sampled_from([2e5, 2e6, 64e6])),
            alpha=data.draw(st.sampled_from([0.25, 1.0, 8.0])),
            pause_bytes=data.draw(st.sampled_from([0, 20_000])),
            lossless=data.draw(st.sampled_from([None, None, False, True])),
            loss=data.draw(st.sampled_from([0.0, 0.0, 0.001, 0.02])),
            weight=data.draw(st.sampled_from([0, 2])),
            changes={"timeout": "200us"} | ({"slot": "5us"} if data.draw(st.booleans()) else {}),
            classes=(TrafficClass("other", "dctcp", data.draw(st.sampled_from([0, 1])), {"timeout": "200us"}),),
        )
    except SimulationError:
        assume(False)
        raise
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    count = data.draw(st.integers(1, 25))
    src = random.integers(0, len(ends), count)
    dst = (src + random.integers(1, len(ends), count)) % len(ends)
    same_rail = network.island[network.endpoint_of[ends[src]]] == network.island[network.endpoint_of[ends[dst]]]
    assume(same_rail.all())
    size = random.integers(1, 120_000, count)
    load = messages(ends[src], ends[dst], size, random.uniform(0, 20e-6, count))
    load = load if data.draw(st.booleans()) else load.in_class(1)
    changes = []
    if data.draw(st.booleans()):
        link = int(network.link[network.link >= 0][random.integers(0, (network.link >= 0).sum())])
        changes = [LinkChange(5e-6, link, 0.0, 10e-6), LinkChange(400e-6, link, 1.0, 0.0)]
    try:
        outcome = simulate(network, [load], options, changes=changes, until_s=60.0)
    except SimulationError as error:
        assert "headroom" in error.message
        return
    counters = outcome.counters
    # A ring of lossless buffers can lock up; that is found and named, never waited for.
    if outcome.state == "deadlock":
        assert outcome.cycle
        return
    assert outcome.state == "finished", (outcome.state, options)
    host = network.fabric.devices.host
    crosses = (host[load.src] != host[load.dst]) | (network is torus())  # the others stay inside their host
    assert counters["delivered_bytes"] == counters["total_bytes"] == size[crosses].sum()
    assert (outcome.ports["peak_bytes"] >= 0).all()
    again = simulate(network, [load], options, changes=changes, until_s=60.0)
    assert dict(again.counters) == dict(counters)
    assert np.array_equal(again.end_s, outcome.end_s)


def test_a_link_that_fails_is_routed_around_where_nothing_is_on_the_network() -> None:
    network = rails()
    ends = senders(network.fabric)
    host = network.fabric.devices.host[ends]
    near = int(np.flatnonzero(host == host[0])[1])
    link = int(network.link[network.link >= 0][0])
    load = messages(ends[:1], ends[near : near + 1], np.array([1000]))
    outcome = simulate(network, [load], PacketOptions(), changes=[LinkChange(0.0, link, 0.0, 0.0)], until_s=1.0)
    assert outcome.state == "finished" and outcome.counters["delivered_bytes"] == 0


def test_numbers_that_exclude_each_other_are_named() -> None:
    load = messages(senders(star().fabric)[:1], senders(star().fabric)[1:2], np.array([1000]))
    with pytest.raises(SimulationError, match=r"tail probe \(selective repeat only\) of profile 0"):
        simulate(star(), [load], PacketOptions("swift", changes={"recovery": "go-back-n"}))


def test_a_slot_without_room_for_a_packet_is_refused() -> None:
    """4,160 bytes take 83 ns at 400 Gb/s; a guard of 1 us leaves nothing of a slot of 1 us."""
    load = messages(senders(star().fabric)[:1], senders(star().fabric)[1:2], np.array([1000]))
    with pytest.raises(
        SimulationError, match=r'a slot of "slotted" has no room for a packet: 1 us less a guard of 1 us'
    ):
        simulate(star(), [load], PacketOptions("slotted", changes={"slot": "1us"}))
    assert simulate(star(), [load], PacketOptions("slotted", changes={"slot": "1200ns"})).finished
