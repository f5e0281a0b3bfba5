"""The engine against what can be written down on paper."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import dragonfly, fat_tree, leaf_spine, rails, star

from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.sim.flow.flow import FlowJob
from syncline.sim.flow.flow import simulate as simulate_flows
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.packet import (
    Marks,
    PacketJob,
    PacketOptions,
    TrafficClass,
    Watching,
    incast,
    messages,
    permutation,
    senders,
    simulate,
)

WIRE = (4096 + 66) / 4096
RATE = 50e9


@pytest.mark.parametrize("transport", ["line-rate", "dcqcn", "infiniband", "ndp", "eqds", "uec", "srd"])
def test_one_sender_fills_its_link(transport: str) -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    outcome = simulate(network, [messages(a, b, 40e6)], PacketOptions(transport=transport))
    wire = (4096 + (30 if transport == "infiniband" else 66)) / 4096
    assert outcome.finished
    assert outcome.end_of_run_s == pytest.approx(40e6 * wire / RATE + outcome.rtt_s / 2, rel=0.01)


@pytest.mark.parametrize("transport", ["dctcp", "swift", "cubic", "hpcc", "timely"])
def test_a_bottleneck_shared_by_two_is_kept_busy(transport: str) -> None:
    network = star()
    ends = senders(network.fabric)
    load = messages(ends[1:3], ends[0], 60e6)
    down = int(network.link[np.flatnonzero(network.dst == -1)[0]])
    watching = Watching(20e-6, links=(down,))
    outcome = simulate(network, [load], PacketOptions(transport=transport), watching=watching, until_s=2e-3)
    assert outcome.sampled is not None
    sent = np.diff(outcome.sampled.wire_bytes[:, 0]) / np.diff(outcome.sampled.time_s)
    busy = sent[25:].mean() / RATE  # past the first half millisecond
    assert busy > {"hpcc": 0.93, "timely": 0.93, "dctcp": 0.98}.get(transport, 0.99)


@pytest.mark.parametrize(("transport", "bound"), [("roce", 1.03), ("infiniband", 1.03), ("ndp", 1.03)])
def test_incast_ends_when_the_last_link_has_carried_it(transport: str, bound: float) -> None:
    network = leaf_spine(16, 4)
    outcome = simulate(
        network, [incast(network.fabric, 12, 2e6)], PacketOptions(transport=transport, pause_bytes=60_000)
    )
    wire = (4096 + (30 if transport == "infiniband" else 66)) / 4096
    least = 12 * 2e6 * wire / RATE
    assert least < outcome.end_of_run_s < bound * least
    assert outcome.counters["drops"] == outcome.counters["lossless_drops"] == 0
    assert (outcome.counters["pauses"] > 0) == (transport == "roce")


def test_dctcp_keeps_the_queue_near_its_threshold() -> None:
    network = star()
    ends = senders(network.fabric)
    down = int(network.link[np.flatnonzero(network.dst == -1)[0]])
    watching = Watching(1e-6, links=(down,), flows=(0, 1))
    options = PacketOptions(transport="dctcp", marks=Marks(step_bdp=1.0))
    outcome = simulate(network, [messages(ends[1:3], ends[0], 1e9)], options, watching=watching, until_s=4e-3)
    assert outcome.sampled is not None
    step = RATE * outcome.rtt_s
    queue = outcome.sampled.queue_bytes[2000:, 0]
    assert queue.max() < step + 12 * 4162  # it overshoots by what two windows grow in a round trip
    assert queue.mean() > 0.5 * step
    assert queue.min() < 0.9 * step  # and swings
    shares = outcome.sampled.goodput_Bps()[2000:].mean(axis=0)
    assert shares.max() / shares.min() < 1.2


@pytest.mark.parametrize("ack_every", [1, 8])
def test_a_window_of_one_packet_does_not_wait_for_the_timer(ack_every: int) -> None:
    network = star()
    ends = senders(network.fabric)
    changes = {"window_packets": 1, "min_window_packets": 1, "ack_every": ack_every}
    outcome = simulate(network, [messages(ends[1], ends[0], 1e6)], PacketOptions(transport="cubic", changes=changes))
    assert outcome.finished
    assert outcome.counters["timeouts"] == 0


@pytest.mark.parametrize("transport", ["dcqcn", "swift", "dctcp"])
def test_late_flows_get_their_share(transport: str) -> None:
    network = star()
    ends = senders(network.fabric)
    load = messages(ends[1:5], ends[0], 1e9, [0.0, 0.0, 1e-3, 1e-3])
    watching = Watching(50e-6, flows=(0, 1, 2, 3))
    outcome = simulate(network, [load], PacketOptions(transport=transport), watching=watching, until_s=30e-3)
    assert outcome.sampled is not None
    shares = outcome.sampled.goodput_Bps()[-200:].mean(axis=0)
    fairness = shares.sum() ** 2 / (4 * (shares**2).sum())
    assert fairness > 0.95
    assert shares.sum() > 0.9 * RATE


def test_packet_and_flow_level_agree_where_queues_do_not_matter() -> None:
    network = rails()
    fabric = network.fabric
    for schedule in (hierarchical((8, 8), Kind.ALL_REDUCE), ring(8, order=list(range(8)))):
        place = packed(fabric, schedule.num_ranks)
        program = lower(verify(schedule), place)
        size = 32 << 20
        packets = simulate(
            network, [PacketJob(program, size)], PacketOptions(transport="line-rate", switching="cut-through")
        )
        flows = simulate_flows([FlowJob(program, size)], FlowNetwork(fabric, NetworkOptions(transport="ideal")))
        assert packets.job_end_s(0) == pytest.approx(flows.job_end_s[0], rel=0.05)


def test_smaller_packets_carry_more_headers() -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    small, jumbo = (
        simulate(network, [messages(a, b, 50e6)], PacketOptions(transport="line-rate", payload_bytes=size)).end_of_run_s
        for size in (1434, 8934)
    )
    assert small / jumbo == pytest.approx((1500 / 1434) / (9000 / 8934), rel=0.002)


def test_pauses_punish_a_bystander() -> None:
    """Two senders of one leaf: one joins an incast, the other sends elsewhere and is paused with it."""
    network = leaf_spine(16, 4)
    ends = senders(network.fabric)
    load = messages([ends[8], ends[9], ends[4], ends[5], ends[8]], [*[ends[0]] * 4, ends[13]], 4e6)
    options = PacketOptions(transport="roce", pause_bytes=40_000)
    paused = simulate(network, [load], options).times_s()
    alone = simulate(network, [messages(ends[8], ends[13], 4e6)], options).end_of_run_s
    sprayed = simulate(network, [load], PacketOptions(transport="ndp")).times_s()
    assert paused[4] > 2.5 * alone
    assert sprayed[4] < 0.8 * paused[4]


def test_a_class_of_its_own_shields_a_collective_from_storage() -> None:
    network = leaf_spine(16, 4)
    ends = senders(network.fabric)
    wanted = messages(ends[1], ends[0], 4e6, name="gradient")
    storage = messages(ends[4:8], ends[0], 4e6, name="storage")
    together = simulate(network, [wanted, storage], PacketOptions(transport="roce"))
    options = PacketOptions(transport="roce", classes=(TrafficClass("storage", "roce"),))
    apart = simulate(network, [wanted, storage.in_class(1)], options)
    weighted = PacketOptions(transport="roce", weight=3, classes=(TrafficClass("storage", "roce", weight=1),))
    shared = simulate(network, [wanted, storage.in_class(1)], weighted)
    alone = 4e6 * WIRE / RATE
    assert together.job_end_s(0) > 2.9 * alone
    assert apart.job_end_s(0) < 1.1 * alone
    assert shared.job_end_s(0) == pytest.approx(alone * 4 / 3, rel=0.1)


def test_spraying_beats_hashing_for_a_permutation() -> None:
    network = fat_tree()
    load = permutation(network.fabric, 2e6, seed=3)
    hashed, adaptive = (
        simulate(network, [load], PacketOptions(transport="roce", routing=routing)) for routing in ("ecmp", "adaptive")
    )
    sprayed = simulate(network, [load], PacketOptions(transport="ndp"))
    assert sprayed.end_of_run_s < 0.8 * hashed.end_of_run_s
    assert adaptive.end_of_run_s < 0.8 * hashed.end_of_run_s


def test_going_around_beats_the_short_way_under_adversarial_traffic() -> None:
    """Every group of a dragonfly sends to the next: six hosts share one global cable, unless they go around."""
    network = dragonfly()
    ends = senders(network.fabric)
    load = messages(ends, np.roll(ends, -6), 2e6)
    short, around, chosen = (
        simulate(network, [load], PacketOptions(transport="srd", routing=routing)).end_of_run_s
        for routing in ("ecmp", "valiant", "ugal")
    )
    assert short == pytest.approx(6 * 2e6 * WIRE / RATE, rel=0.03)
    assert around < 0.8 * short
    assert chosen < 0.6 * short


def test_a_message_alone_takes_latencies_bytes_and_a_packet_for_each_further_hop() -> None:
    network = star()
    ports, rate = np.array([0, 1]), float(network.rate_Bps[0])
    latency_s = float(network.latency_ps[ports].sum()) * 1e-12
    assert rate == network.rate_Bps[1] and latency_s > 0
    assert network.alone_s(ports, 100, 4096, 66) == pytest.approx(latency_s + 2 * 166 / rate)
    whole = 2 * 4096 + 100 + 3 * 66
    assert network.alone_s(ports, 2 * 4096 + 100, 4096, 66) == pytest.approx(latency_s + (4162 + whole) / rate)
    assert network.alone_s(ports, 100, 4096, 66, cap_Bps=rate / 2) == pytest.approx(latency_s + 3 * 166 / rate)
