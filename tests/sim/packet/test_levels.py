"""Packet and flow level: the same paths from the same seed, and a difference that adds up."""

from __future__ import annotations

import pytest
from tests.sim.packet.packet_fabrics import dragonfly, fat_tree, leaf_spine, rails, star, torus

from syncline.program import lower, packed
from syncline.schedule import hierarchical, ring, verify
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire
from syncline.sim.packet import (
    LinkChange,
    Outcome,
    PacketJob,
    PacketNetwork,
    PacketOptions,
    messages,
    senders,
    simulate,
)
from syncline.sim.packet.chain import chain
from syncline.sim.packet.levels import Difference, difference, flow_options
from syncline.sim.packet.run import _credit

WIRE, PAYLOAD = 4162, 4096


def both(network: PacketNetwork, ranks: int, size: int, options: PacketOptions) -> tuple[Outcome, Difference]:
    program = lower(verify(ring(ranks)), packed(network.fabric, ranks))
    fluid = FlowNetwork(network.fabric, flow_options(options))
    wired = wire(program, fluid)
    outcome = simulate(network, [PacketJob(program, size)], options)
    return outcome, difference(outcome, estimate(wired, fluid, size), wired)


@pytest.mark.parametrize("network", [leaf_spine, fat_tree, dragonfly, torus, rails])
@pytest.mark.parametrize("seed", [0, 3])
def test_hashed_packets_take_the_paths_of_the_flow_level(network, seed: int) -> None:
    net = network()
    ranks, size = 16, 16 * 16 * PAYLOAD
    options = PacketOptions(transport="line-rate", seed=seed, changes={"ack_every": 1 << 20})
    program = lower(verify(ring(ranks)), packed(net.fabric, ranks))
    fluid = FlowNetwork(net.fabric, flow_options(options))
    outcome = simulate(net, [PacketJob(program, size)], options)
    real = net.link >= 0
    flows = estimate(program, fluid, size).link_bytes[net.link[real]]
    # A connection has 480 packets; its acknowledgements, on the way back, are bytes of half a packet.
    assert outcome.ports["wire_bytes"][real] / WIRE == pytest.approx(flows / PAYLOAD, abs=8)


def test_a_connection_leaves_a_way_that_died() -> None:
    network = leaf_spine(16, 4)
    ends = senders(network.fabric)
    load, options = messages(ends[0], ends[8], 2e6), PacketOptions(transport="dctcp")
    healthy = simulate(network, [load], options)
    up = int(healthy.posted.ways.row(0)[1])
    assert healthy.ports["packets"][up] > 400
    change = LinkChange(10e-6, int(network.link[up]), 0.0, reroute_s=5e-6)
    failed = simulate(network, [load], options, changes=[change])
    assert failed.finished
    assert failed.ports["packets"][up] < 300
    dead = simulate(network, [load], options, changes=[LinkChange(10e-6, change.link, reroute_s=None)], until_s=0.1)
    assert not dead.finished


def test_one_message_is_its_own_chain() -> None:
    network = star()
    a, b, c = senders(network.fabric)[:3]
    alone = simulate(network, [messages(a, b, 1e6)], PacketOptions(transport="line-rate"))
    found = chain(alone)
    assert found.messages == 1
    assert found.alone_s == pytest.approx(alone.end_of_run_s, rel=1e-6)
    assert found.queued_s + found.limited_s + found.held_s == pytest.approx(0, abs=1e-10)
    met = simulate(network, [messages([a, c], [b, b], 1e6)], PacketOptions(transport="line-rate"))
    assert chain(met).queued_s == pytest.approx(1e6 * WIRE / PAYLOAD / 50e9, rel=0.02)
    one_nic = simulate(network, [messages([a, a], [b, c], 1e6)], PacketOptions(transport="line-rate"))
    assert chain(one_nic).held_s == pytest.approx(1e6 * WIRE / PAYLOAD / 50e9, rel=0.02)


@pytest.mark.parametrize("transport", ["line-rate", "dcqcn", "ndp"])
def test_the_parts_add_up(transport: str) -> None:
    outcome, found = both(leaf_spine(16, 4), 16, 4 << 20, PacketOptions(transport=transport))
    assert sum(found.parts.values()) == pytest.approx(outcome.job_end_s(0) - found.flow_s)
    assert abs(found.parts["chain"]) < 0.03 * found.flow_s
    assert 0 < found.parts["headers"] <= (WIRE / PAYLOAD - 1) * found.flow_s
    assert found.parts["hops"] > 0


def test_messages_that_queue_come_to_take_turns() -> None:
    """Connections of a ring that share a link: flows go on in step, packets overlap what the others wait for."""
    for seed in (1, 2):
        _, found = both(rails(8), 64, 4 << 20, PacketOptions(transport="line-rate", seed=seed))
        assert found.packet_s < 0.95 * found.flow_s
        assert 0 < found.parts["queues"] + found.parts["senders"] < -0.5 * found.parts["sharing"]
        assert abs(found.parts["chain"]) < 0.01 * found.flow_s


def test_the_parts_are_told() -> None:
    _, found = both(rails(8), 64, 4 << 20, PacketOptions(transport="dcqcn", seed=1))
    text = "\n".join(found.lines())
    assert "at flow level" in text
    assert "headers: +" in text
    assert "connections and is sending" in text
    assert set(found.to_json()) == {"headers", "hops", "queues", "rates", "senders", "sharing", "chain"}


def test_a_hierarchical_program_on_rails_agrees() -> None:
    network = rails(8)
    program = lower(verify(hierarchical((8, 8))), packed(network.fabric))
    options = PacketOptions(transport="roce")
    fluid = FlowNetwork(network.fabric, flow_options(options))
    wired = wire(program, fluid)
    outcome = simulate(network, [PacketJob(program, 64 << 20)], options)
    found = difference(outcome, estimate(wired, fluid, 64 << 20), wired)
    assert outcome.job_end_s(0) == pytest.approx(found.flow_s, rel=0.05)
    assert abs(found.parts["chain"]) < 0.01 * found.flow_s


@pytest.mark.parametrize(("credit_bytes", "share"), [(None, 0.25), (64 << 20, 0.5)])
def test_a_flow_behind_a_slow_port_uses_up_the_credits_of_the_others(credit_bytes: int | None, share: float) -> None:
    """Two flows of one sender, turn by turn, one to a port of a quarter of the rate: the link's credits end up with
    packets for that port, so both go at its pace. With credits for all of it each has half of the link."""
    network = star()
    ends = senders(network.fabric)
    slow, fast = int(network.endpoint_of[ends[1]]), 4_000_000
    down = int(network.link[(network.dst == -1 - slow) & (network.src >= 0)][0])
    load = messages(ends[0], ends[1:3], fast)
    options = PacketOptions("infiniband", credit_bytes=credit_bytes)
    outcome = simulate(network, [load], options, changes=[LinkChange(0.0, down, 0.25)])
    assert outcome.end_s[1] == pytest.approx(fast * (PAYLOAD + 30) / PAYLOAD / (share * 50e9), rel=0.05)


def test_credits_cover_both_ways_of_the_longest_link() -> None:
    """A quarter more than rate x latency x 2, and six packets; one's own figure holds at least two packets."""
    network = star()
    flight = float((network.rate_Bps * network.latency_ps).max()) * 2e-12
    assert _credit(network, PacketOptions("infiniband", payload_bytes=4096)) == pytest.approx(1.25 * flight + 6 * 4296)
    assert _credit(network, PacketOptions("infiniband", payload_bytes=4096, credit_bytes=1)) == 2 * 4296
    assert _credit(network, PacketOptions("dctcp")) == 0
