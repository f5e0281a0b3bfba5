"""Programs and traffic as messages that wait; classes, queue pairs, jobs; what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import dragonfly, fat_tree, leaf_spine, rails, star, torus

from syncline.errors import SimulationError
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.sim.packet import (
    PacketJob,
    PacketOptions,
    Progress,
    all_to_all,
    background,
    incast,
    messages,
    permutation,
    prepare,
    senders,
    simulate,
)
from syncline.sim.packet.chronicle import packet_timeline
from syncline.sim.packet.traffic import WEB_SEARCH
from syncline.timeline import SourceKind, SpanKind


def test_rounds_wait_for_each_other() -> None:
    network = star(5)
    program = lower(verify(ring(4)), packed(network.fabric, 4))
    outcome = simulate(network, [PacketJob(program, 4_000_000)], PacketOptions(transport="line-rate"))
    rounds = sorted(outcome.blocks, key=lambda block: block.round)
    assert len(rounds) == 6
    for before, after in pairwise(rounds):
        ends = outcome.end_s[before.first : before.first + 4]
        begins = outcome.begin_s[after.first : after.first + 4]
        # Rank r posts its next send when what it sent and what it received is there.
        assert begins.min() >= ends.min()
        assert begins.max() <= ends.max() + 1e-12
    assert outcome.job_end_s(0) > 6 * 1e6 / 50e9


def test_jobs_follow_each_other() -> None:
    network = star(5)
    program = lower(verify(ring(4)), packed(network.fabric, 4))
    both = [PacketJob(program, 1e6), PacketJob(program, 1e6, after=(0,), compute_s=1e-3)]
    outcome = simulate(network, both, PacketOptions(transport="line-rate"))
    assert outcome.job_end_s(1) == pytest.approx(2 * outcome.job_end_s(0) + 1e-3, rel=1e-3)
    together = simulate(
        network, [PacketJob(program, 1e6), PacketJob(program, 1e6)], PacketOptions(transport="line-rate")
    )
    assert together.job_end_s(0) > 1.6 * outcome.job_end_s(0)


def test_inside_hosts_messages_take_the_scale_up_links() -> None:
    network = rails(8)
    program = lower(verify(hierarchical((1, 8), Kind.ALL_REDUCE, families=("ring", "ring"))), packed(network.fabric, 8))
    outcome = simulate(network, [PacketJob(program, 64 << 20)], PacketOptions(transport="line-rate"))
    assert outcome.counters["data_packets"] == 0
    assert outcome.finished
    assert outcome.end_of_run_s > 2 * 7 / 8 * (64 << 20) / 900e9


def test_links_inside_a_host_are_taken_by_who_comes_first_not_by_who_was_posted_first() -> None:
    """The last but one of seven messages of a GPU once held its receiver's link from the start, and others waited."""
    network = rails(8)
    gpus = network.fabric.gpus[:8]
    load = messages(np.append(np.repeat(gpus[0], 7), gpus[7]), np.append(gpus[1:], gpus[6]), 65_536)
    times = simulate(network, [load], PacketOptions(transport="line-rate")).times_s()
    assert times[7] == pytest.approx(times[0]) and times[5] - times[0] == pytest.approx(5 * 65_536 / 450e9, rel=1e-3)


def test_queue_pairs_cut_messages_and_spread_them() -> None:
    network = leaf_spine(16, 4)
    ends = senders(network.fabric)
    load = messages(ends[:4], ends[8:12], 4e6)
    one = simulate(network, [load], PacketOptions(transport="roce", seed=1))
    many = simulate(network, [load], PacketOptions(transport="roce", seed=1, queue_pairs=16))
    assert len(many.times_s()) == 4
    assert many.end_of_run_s < one.end_of_run_s
    used = (many.ports["wire_bytes"] > 100_000) & (many.network.src >= 0) & (many.network.dst >= 0)
    assert used.sum() == 8  # four cables up, four down


def test_timeline_has_both_ends_and_the_queues() -> None:
    network = star()
    outcome = simulate(network, [incast(network.fabric, 4, 1e6)], PacketOptions(transport="dctcp"))
    timeline = packet_timeline(outcome)
    assert timeline.source.kind is SourceKind.SIMULATED_PACKET
    assert len(timeline.spans) == 8
    assert set(timeline.spans.kind.tolist()) == {int(SpanKind.SEND), int(SpanKind.RECV)}
    assert timeline.end_s == pytest.approx(outcome.end_of_run_s)
    assert timeline.metadata["counters"]["marks"] == outcome.counters["marks"] > 0
    assert timeline.metadata["queues"][0]["peak_bytes"] == outcome.ports["peak_bytes"].max()
    assert timeline.link_use().size_bytes.sum() == outcome.ports["wire_bytes"].sum()


@pytest.mark.parametrize("network", [star, leaf_spine, fat_tree, dragonfly, torus])
def test_next_hops_are_those_of_the_fabric(network) -> None:
    net = network()
    ends = senders(net.fabric)
    run = prepare(net, [messages(ends[0], ends[-1], 1e3)])
    for src, dst in ((0, len(ends) - 1), (1, len(ends) // 2)):
        paths = net.routes.paths(int(ends[src]), int(ends[dst]))
        wanted: dict[int, set[int]] = {}
        for path in paths:
            for link in path:
                port = int(net.port_of_link[link])
                if net.src[port] >= 0:
                    wanted.setdefault(int(net.src[port]), set()).add(port)
        for at, ports in wanted.items():
            assert set(run.engine.next_ports(at, dst).tolist()) >= ports or len(paths) == 1024


def test_traffic_has_the_shape_it_says() -> None:
    fabric = leaf_spine().fabric
    load = permutation(fabric, 1e6, seed=4)
    assert sorted(load.src) == sorted(load.dst)
    assert (load.src != load.dst).all()
    pairs = all_to_all(fabric, 10)
    assert len(pairs) == 16 * 15
    assert len({(int(a), int(b)) for a, b in zip(pairs.src, pairs.dst, strict=True)}) == 240
    other = background(fabric, 0.5, 2e-3, seed=1)
    assert other.size_bytes.sum() == pytest.approx(0.5 * 16 * 50e9 * 2e-3, rel=0.35)
    assert WEB_SEARCH.mean_bytes == pytest.approx(1.7e6, rel=0.1)


def test_progress_comes_while_it_runs() -> None:
    network = star()
    seen: list[Progress] = []
    simulate(network, [incast(network.fabric, 8, 200e6)], PacketOptions(transport="line-rate"), progress=seen.append)
    assert len(seen) > 1
    assert seen[-1].share == 1.0
    assert all(a.share < b.share for a, b in pairwise(seen))
    assert seen[0].wall_s > 0


def test_a_run_can_stop_early() -> None:
    network = star()
    outcome = simulate(network, [incast(network.fabric, 8, 6e6)], PacketOptions(transport="line-rate"), until_s=1e-4)
    assert outcome.state == "running"
    assert outcome.now_s == pytest.approx(1e-4, rel=0.01)
    assert outcome.job_end_s(0) == np.inf


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transport": "magic"}, 'no packet transport is called "magic"'),
        ({"routing": "luck"}, 'no routing is called "luck"'),
        ({"payload_bytes": 0}, "payload_bytes is 0; it must be from 1"),
        ({"transport": "roce", "routing": "spray"}, "spraying reorders packets"),
        ({"changes": {"gian": 1}}, 'has no parameter "gian"'),
        ({"switching": "optical"}, 'switching is "optical"'),
    ],
)
def test_bad_options_are_refused(options, text) -> None:
    with pytest.raises(SimulationError, match=text):
        PacketOptions(**options)


def test_bad_loads_are_refused() -> None:
    network = star()
    ends = senders(network.fabric)
    with pytest.raises(SimulationError, match="message 0 of traffic goes to itself"):
        messages(ends[0], ends[0], 5)
    with pytest.raises(SimulationError, match="there is nothing to send"):
        simulate(network, [])
    with pytest.raises(SimulationError, match="traffic class 1 is not described"):
        simulate(network, [messages(ends[0], ends[1], 5).in_class(1)])
    with pytest.raises(SimulationError, match=r"need .* MB of headroom"):
        simulate(network, [messages(ends[0], ends[1], 5)], PacketOptions(transport="roce", buffer_bytes=1e5))
    with pytest.raises(SimulationError, match="headroom_bytes is 30,000; a switch has a buffer of 20,000 bytes"):
        simulate(network, [messages(ends[0], ends[1], 5)], PacketOptions(buffer_bytes=2e4, headroom_bytes=30_000))


def test_traffic_without_a_name_is_shown_as_traffic() -> None:
    network = star()
    outcome = simulate(network, [replace(incast(network.fabric, 4, 1e5), name="")], PacketOptions(transport="dctcp"))
    assert packet_timeline(outcome).names == ("traffic",)
