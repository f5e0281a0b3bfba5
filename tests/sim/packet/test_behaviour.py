"""What is known of transports, buffers and fabrics, shown by the engine; what examples/packet_*.py print is held here.

Throughput, incast, fairness, frames, classes, pauses and dragonflies are in test_closed_forms, loss in test_faults.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import dragonfly, leaf_spine, star

from syncline.fabric import ClusterSpec, build
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.flow.flow import FlowJob
from syncline.sim.flow.flow import simulate as simulate_flows
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.packet import (
    Marks,
    PacketJob,
    PacketNetwork,
    PacketOptions,
    Traffic,
    TrafficClass,
    Watching,
    all_to_all,
    incast,
    messages,
    packet_network,
    permutation,
    senders,
    simulate,
)

RATE = 50e9
HEADER = {"infiniband": 30, "dctcp": 78, "cubic": 78, "hpcc": 108}


def _down(network: PacketNetwork) -> int:
    return int(network.link[np.flatnonzero(network.dst == -1)[0]])


@pytest.mark.parametrize(
    ("transport", "settled_s"),
    [("line-rate", 5e-4), ("infiniband", 5e-4), ("dcqcn", 25e-3), ("dctcp", 5e-4), ("swift", 5e-4), ("hpcc", 5e-4),
     ("timely", 5e-3), ("cubic", 5e-4), ("ndp", 5e-4), ("eqds", 5e-4), ("uec", 5e-4), ("srd", 5e-4)],
)  # fmt: skip
def test_throughput_is_within_a_hundredth_of_the_closed_form(transport: str, settled_s: float) -> None:
    network = star()
    ends = senders(network.fabric)
    marks = Marks(step_bdp=1.0) if transport == "dctcp" else None  # at a sixth, its default, the queue runs empty
    watching = Watching(10e-6, flows=(0, 1))
    load = messages(ends[1:3], ends[0], 2e9)
    outcome = simulate(
        network, [load], PacketOptions(transport, marks=marks), watching=watching, until_s=settled_s + 1e-3
    )
    assert outcome.sampled is not None
    got = outcome.sampled.goodput_Bps()[round(settled_s / 10e-6) :].sum(axis=1).mean()
    best = RATE * (0.95 if transport == "hpcc" else 1.0) * 4096 / (4096 + HEADER.get(transport, 66))
    assert got == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize(("flows", "share"), [(2, 1.0), (2, 4.0), (4, 4.0)])
def test_dctcp_swings_as_its_authors_say(flows: int, share: float) -> None:
    """Alizadeh et al., SIGCOMM 2010, 3.3: at most K + N packets, swing sqrt(N (C RTT + K) / 2)."""
    network = star()
    ends = senders(network.fabric)
    options = PacketOptions("dctcp", marks=Marks(step_bdp=share))
    watching = Watching(1e-6, links=(_down(network),))
    load = messages(ends[1 : 1 + flows], ends[0], 1e9)
    outcome = simulate(network, [load], options, watching=watching, until_s=6e-3)
    assert outcome.sampled is not None
    queue = outcome.sampled.queue_bytes[2000:, 0] / (4096 + 78)
    flight = RATE * outcome.rtt_s / (4096 + 78)
    mark = share * flight
    rises = np.flatnonzero((queue[1:] > mark) & (queue[:-1] <= mark))
    swing = np.median([np.ptp(queue[a:b]) for a, b in pairwise(rises)])
    assert len(rises) > 20
    assert queue.max() == pytest.approx(mark + flows, abs=2)
    assert swing == pytest.approx(np.sqrt(flows * (flight + mark) / 2), rel=0.25)


@pytest.mark.parametrize("count", [8, 56])
@pytest.mark.parametrize("transport", ["roce", "infiniband", "dcqcn", "ndp"])
def test_lossless_incast_is_within_three_hundredths_of_the_bound(transport: str, count: int) -> None:
    network = leaf_spine(64, 8)
    options = PacketOptions(transport, pause_bytes=100_000)
    outcome = simulate(network, [incast(network.fabric, count, 2e6)], options)
    bound_s = count * 2e6 * (4096 + HEADER.get(transport, 66)) / 4096 / RATE
    assert bound_s < outcome.end_of_run_s < 1.03 * bound_s
    assert outcome.counters["drops"] == 0


def test_one_loss_in_ten_thousand_costs_go_back_n_a_flight_and_selective_repeat_a_packet() -> None:
    network = leaf_spine()
    ends = senders(network.fabric)
    found = {}
    for recovery in ("go-back-n", "selective"):
        changes = {"recovery": recovery, "ack_every": 1, "timeout": "200us"}
        options = PacketOptions("line-rate", lossless=False, loss=1e-4, changes=changes, seed=2)
        found[recovery] = simulate(network, [messages(ends[0], ends[8], 200e6)], options)
    back, selective = found["go-back-n"], found["selective"]
    flight = RATE * back.rtt_s / 4162
    assert selective.counters["resent_packets"] <= selective.counters["errors"]
    assert back.counters["resent_packets"] > 20 * selective.counters["resent_packets"]
    assert back.counters["resent_packets"] < 2 * flight * back.counters["errors"]
    clean = simulate(network, [messages(ends[0], ends[8], 200e6)], PacketOptions("line-rate")).end_of_run_s
    assert selective.end_of_run_s < 1.002 * clean
    assert 1.01 * clean < back.end_of_run_s < 1.06 * clean


def test_buffer_sweep() -> None:
    """32 to 1: what ten packets each bring fits into 64 us of link rate and not into 4; trimming needs neither."""
    network = leaf_spine(64, 8)
    ends_s = {
        (transport, depth_us): simulate(
            network,
            [incast(network.fabric, 32, 1e6)],
            PacketOptions(transport, queue_bytes=round(depth_us * RATE / 1e6)),
        ).end_of_run_s
        for transport in ("dctcp", "ndp")
        for depth_us in (4, 64)
    }
    assert ends_s["dctcp", 4] > 5e-3  # a timeout
    assert ends_s["dctcp", 64] < 720e-6
    assert ends_s["ndp", 4] == pytest.approx(ends_s["ndp", 64], rel=0.01)


def test_cubic_does_not_wait_for_acknowledgements_nobody_owes() -> None:
    """A window of one packet and an acknowledgement of every second would be a timeout a packet."""
    network = leaf_spine(64, 8)
    outcome = simulate(network, [incast(network.fabric, 32, 1e6)], PacketOptions("cubic", queue_bytes=200_000))
    assert outcome.counters["timeouts"] <= outcome.counters["drops"] / 4
    assert outcome.end_of_run_s < 50e-3


def test_telemetry_in_a_class_of_its_own_neither_slows_nor_starves() -> None:
    network = leaf_spine(64, 8)
    ends = senders(network.fabric)
    gradient = messages(ends[9], ends[0], 8e6)
    start = np.repeat(np.arange(0, 160e-6, 10e-6), 48)
    telemetry = messages(np.tile(ends[16:64], 16), ends[0], 2e3, start)
    behind = PacketOptions("roce", classes=(TrafficClass("telemetry", "roce"),))
    weighted = PacketOptions("roce", weight=3, classes=(TrafficClass("telemetry", "roce", weight=1),))
    alone_s = simulate(network, [gradient], PacketOptions("roce")).job_end_s(0)
    runs = [simulate(network, [gradient, telemetry.in_class(1)], options) for options in (behind, weighted)]
    worst = [float(run.times_s(1).max()) for run in runs]
    assert runs[0].job_end_s(0) < 1.01 * alone_s
    assert worst[0] > 150e-6  # until the gradient is through
    assert runs[1].job_end_s(0) < 1.25 * alone_s
    assert worst[1] < 15e-6


@cache
def _tree() -> PacketNetwork:
    network = {"topology": "fat-tree", "tiers": 3, "link": "NDR", "hosts_per_leaf": 4, "leaves_per_pod": 4}
    spec = {"hosts": 64, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": network}
    return packet_network(build(ClusterSpec.model_validate(spec)))


def _load(pattern: str) -> Traffic:
    fabric = _tree().fabric
    ends = senders(fabric)
    if pattern == "ring":
        return messages(ends, np.roll(ends, -5), 4e6)
    return permutation(fabric, 4e6, seed=1) if pattern == "permutation" else all_to_all(fabric, 65536)


@pytest.mark.parametrize(("pattern", "hashed_least"), [("ring", 2.0), ("permutation", 2.0), ("all-to-all", 1.2)])
def test_hashes_collide_and_spreading_does_not(pattern: str, hashed_least: float) -> None:
    load = _load(pattern)
    need_s = load.size_bytes.sum() / 64 * 4162 / 4096 / RATE
    hashed, adaptive, sprayed = (
        simulate(_tree(), [load], options).end_of_run_s / need_s
        for options in (PacketOptions("roce"), PacketOptions("roce", "adaptive"), PacketOptions("uec"))
    )
    assert hashed > hashed_least
    assert 1 < adaptive < 1.1
    assert 1 < sprayed < 1.25


def _all_reduce(between: Any, options: PacketOptions) -> tuple[float, float]:
    """Return what an all-reduce of 32 MiB takes at packet and at flow level."""
    spec = {"hosts": 8, "host": "8 x H100", "network": between}
    fabric = build(ClusterSpec.model_validate(spec))
    program = lower(verify(hierarchical((8, 8), Kind.ALL_REDUCE)), packed(fabric))
    packets = simulate(packet_network(fabric), [PacketJob(program, 32 << 20)], options)
    flows = simulate_flows([FlowJob(program, 32 << 20)], FlowNetwork(fabric, NetworkOptions(transport="ideal")))
    return packets.job_end_s(0), float(flows.job_end_s[0])


def test_rails_need_no_spreading_and_a_fat_tree_does() -> None:
    tree = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 2}
    hashed, flow_s = _all_reduce("rail-optimized NDR", PacketOptions("roce"))
    spread, _ = _all_reduce("rail-optimized NDR", PacketOptions("roce", "adaptive"))
    tree_hashed, _ = _all_reduce(tree, PacketOptions("roce"))
    tree_spread, _ = _all_reduce(tree, PacketOptions("roce", "adaptive"))
    assert hashed == pytest.approx(spread, rel=0.01)
    assert hashed == pytest.approx(flow_s, rel=0.05)  # nothing queues: the levels agree
    assert tree_hashed > 1.15 * tree_spread
    assert tree_spread < 1.15 * hashed


def test_ugal_takes_the_short_way_when_it_is_free() -> None:
    network = dragonfly()
    load = permutation(network.fabric, 2e6)
    around, chosen = (
        simulate(network, [load], PacketOptions("srd", routing)).end_of_run_s for routing in ("valiant", "ugal")
    )  # type: ignore[arg-type]
    assert chosen < 0.75 * around


def test_levels_differ_where_spraying_uses_what_a_hash_leaves_idle() -> None:
    tree = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 2}
    packet_s, flow_s = _all_reduce(tree, PacketOptions("ndp"))
    assert packet_s < 0.9 * flow_s


TIERS: dict[str, object] = {
    "hosts": 64, "host": {"gpu": "H100", "gpus": 1, "nics": 1},
    "network": {"topology": "fat-tree", "tiers": 3, "link": "NDR", "hosts_per_leaf": 4, "leaves_per_pod": 4},
}  # fmt: skip


def test_a_sender_takes_all_paths_before_it_takes_one_again() -> None:
    """16 paths: four cables up from the leaf to the spine, four down to the other leaf."""
    network = leaf_spine()
    ends = senders(network.fabric)
    up = (network.src >= 0) & (network.dst >= 0)
    for rounds in (1, 3):
        load = messages(ends[:1], ends[-1:], np.array([16 * rounds * 4096]))
        carried = simulate(network, [load], PacketOptions("ndp")).ports["wire_bytes"][up]
        assert sorted(carried[carried > 4096] // 4096) == 8 * [4 * rounds]


def test_random_orders_of_all_paths_seldom_fill_a_queue() -> None:
    """Full load over three tiers with queues of eight packets."""
    network = packet_network(build(ClusterSpec.model_validate(TIERS)))
    outcome = simulate(network, [permutation(network.fabric, 4e6, seed=1)], PacketOptions("ndp"))
    assert 0 < outcome.counters["trims"] < 0.05 * outcome.counters["data_packets"]
    assert outcome.end_of_run_s < 1.4 * 4e6 * 4162 / 4096 / RATE


def _thin() -> PacketNetwork:
    host = {"gpu": "H100", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "link": "400GbE"}
    thin = {"topology": "leaf-spine", "link": "400GbE", "hosts_per_leaf": 8, "oversubscription": "8:1"}
    return packet_network(build(ClusterSpec.model_validate({"hosts": 32, "host": host, "network": thin})))


@pytest.mark.parametrize("transport", ["ndp", "eqds", "uec"])
def test_headers_leave_room_for_data_on_thin_uplinks(transport: str) -> None:
    """Seven of eight packets are trimmed there, and ten headers at most go ahead of a packet."""
    network = _thin()
    load = permutation(network.fabric, 2e5)
    outcome = simulate(network, [load], PacketOptions(transport=transport, payload_bytes=512))
    assert outcome.state == "finished" and outcome.counters["timeouts"] == 0
    best = 8 * 2e5 * (512 + 66 + 640) / 512 / RATE  # every packet of an uplink behind ten headers
    assert outcome.end_of_run_s < 1.3 * best


def test_a_livelock_ends_with_its_verdict() -> None:
    """Headers of packets of 64 bytes are as long as their payload: strictly ahead, they fill thin uplinks for ever."""
    network = _thin()
    strict = PacketOptions(transport="eqds", payload_bytes=64, changes={"headers_ahead": 0})
    outcome = simulate(network, [permutation(network.fabric, 1e6)], strict)
    assert outcome.state == "livelock"
    assert outcome.counters["delivered_bytes"] < outcome.counters["total_bytes"]


def test_either_end_of_a_full_queue_is_trimmed() -> None:
    """Two senders in step fill a queue: with the coin both lose packets, without it mostly one of them."""
    network = star(3)
    ends = senders(network.fabric)
    load = messages(ends[1:3], ends[0], np.array([200_000, 200_000]))
    shares = []
    for tail in (0.0, 0.5):
        outcome = simulate(network, [load], PacketOptions("ndp", changes={"trim_tail": tail}))
        trims = outcome.flows["trims"]
        shares.append(trims.max() / trims.sum())
    assert shares[1] < 0.8 < shares[0]
