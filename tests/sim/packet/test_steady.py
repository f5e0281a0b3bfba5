"""What is steady is counted instead of run, and everything that is reported stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.packet.packet_fabrics import leaf_spine, rails, star

from syncline.sim.packet import (
    LinkChange,
    Outcome,
    PacketNetwork,
    PacketOptions,
    Watching,
    incast,
    messages,
    permutation,
    senders,
    simulate,
)
from syncline.sim.packet.graph import PacketGraph

SKIPPING = PacketOptions("dcqcn", "adaptive", skips_steady=True)


def both(network: PacketNetwork, load: Any, options: PacketOptions = SKIPPING, **more: Any) -> tuple[Outcome, Outcome]:
    """Return the run that skips what is steady, and the one that runs every packet."""
    return simulate(network, [load], options, **more), simulate(
        network, [load], replace(options, skips_steady=False), **more
    )


def test_a_long_message_takes_what_it_takes_and_few_events() -> None:
    network = star(4)
    skipped, every = both(network, permutation(network.fabric, 50e6))
    assert skipped.end_of_run_s == pytest.approx(every.end_of_run_s, rel=1e-4)
    assert skipped.counters["events"] < every.counters["events"] / 5
    for name in ("data_packets", "sent_bytes", "delivered_bytes", "hops", "control_packets"):
        assert skipped.counters[name] == pytest.approx(every.counters[name], rel=0.01), name
    assert skipped.utilisation() == pytest.approx(every.utilisation(), abs=0.01)
    assert np.array_equal(skipped.ports["packets"] > 0, every.ports["packets"] > 0)


def test_hosts_go_on_meanwhile_and_what_they_post_is_on_time() -> None:
    """A second message, posted by a host while the first is skipped, begins when it should and slows the first."""
    network = star(3)
    ends = senders(network.fabric)
    load = messages(ends[1:3], ends[0], np.array([40_000_000, 4_000_000]), np.array([0.0, 300e-6]))
    skipped, every = both(network, load, replace(SKIPPING, transport="infiniband", routing="ecmp"))
    assert skipped.counters["skipped_packets"] > 5000
    assert skipped.begin_s == pytest.approx(every.begin_s, abs=1e-12)
    assert skipped.end_s == pytest.approx(every.end_s, rel=2e-3)


def test_an_incast_whose_senders_still_converge_is_run() -> None:
    network = star(9)
    skipped, every = both(network, incast(network.fabric, 8, 3e6))
    assert skipped.end_of_run_s == pytest.approx(every.end_of_run_s, rel=0.01)


def test_changes_of_links_and_samples_run_every_packet() -> None:
    network = star(4)
    load = permutation(network.fabric, 20e6)
    link = int(network.link[network.link >= 0][0])
    for more in ({"changes": [LinkChange(1e-4, link, 0.5)]}, {"watching": Watching(1e-5, (link,))}):
        skipped, every = both(network, load, **more)
        assert skipped.counters["skipped_packets"] == 0
        assert np.array_equal(skipped.end_s, every.end_s)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_small_steps_take_as_long_with_and_without(data: st.DataObject) -> None:
    """Rounds of compute and exchanges between random groups, some beside each other, some one after the other."""
    network = data.draw(st.sampled_from((star, leaf_spine, rails)))()
    random = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    gpus = network.fabric.gpus.astype(np.int64)
    flows = []
    for _ in range(2):
        order = random.permutation(gpus)[: int(random.integers(2, 9))]
        flows.append((order, np.roll(order, -1), np.ones(len(order))))
    count = int(random.integers(2, 7))
    path = random.integers(-1, 2, count)
    waits = [[int(random.integers(0, i))] if i and random.random() < 0.7 else [] for i in range(count)]
    graph = PacketGraph(
        random.uniform(0, 400e-6, count), random.uniform(1e6, 12e6, count), path.astype(np.int64), waits, flows
    )
    if (path < 0).all():
        return
    options = replace(SKIPPING, transport=data.draw(st.sampled_from(["dcqcn", "infiniband", "roce"])))
    skipped, every = both(network, graph, options)
    assert skipped.state == every.state == "finished"
    assert skipped.end_of_run_s == pytest.approx(every.end_of_run_s, rel=0.01)
    assert skipped.counters["delivered_bytes"] == every.counters["delivered_bytes"]
