"""DCQCN's fair shares and convergence, Swift's tail under load, NDP's incast, and hashing against spraying."""

from __future__ import annotations

import numpy as np
from dumbbell import Dumbbell, dumbbell_trial
from figure import Figure, Point

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import (
    PacketNetwork,
    PacketOptions,
    Watching,
    incast,
    messages,
    packet_network,
    permutation,
    senders,
    simulate,
)
from syncline.sim.packet.flow_table import flow_table

TREE = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 16}


def figures() -> list[Figure]:
    return [_dcqcn(), _swift(), _ndp(), _spraying()]


def _network(hosts: int) -> PacketNetwork:
    spec = {"hosts": hosts, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": TREE}
    return packet_network(build(ClusterSpec.model_validate(spec)))


def _dcqcn() -> Figure:
    """At the paper's 40 Gb/s: flows that start one after the other end at the same share."""
    points = []
    for flows in (2, 4, 8):
        shape = Dumbbell(flows, access_Bps=5e9, trunk_Bps=5e9, start_s=tuple(i * 5e-3 for i in range(flows)))
        found = dumbbell_trial(
            PacketOptions("dcqcn", payload_bytes=1024, buffer_bytes=12e6), shape, settle_s=60e-3, measure_s=40e-3
        )
        points.append(Point(f"{flows} flows that come one by one", 1.0, found.jain))
    return Figure(
        "DCQCN: fairness after convergence",
        "Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015: "
        "flows converge to their fair share",
        "Jain's index", tuple(points),
        read="abstract, 2026-11-16: better fairness, without a number; an index of 1 is the ideal",
    )  # fmt: skip


def _swift() -> Figure:
    """Short flows beside long ones that fill the link, at 100 Gb/s."""
    shape = Dumbbell(12, latency_s=2e-6)
    long = messages([shape.sender(i) for i in range(8)], [shape.receiver(i) for i in range(8)], 1e9)
    start = 2e-3 + np.arange(400) * 15e-6
    rows = 8 + np.arange(400) % 4
    short = messages([shape.sender(int(i)) for i in rows], [shape.receiver(int(i)) for i in rows], 4096, start)
    outcome = simulate(shape.network(), [long, short], PacketOptions("swift"), watching=Watching(1e-4), until_s=10e-3)
    table = flow_table(outcome, 1)
    tail = float(np.quantile(table.time_s, 0.99))
    return Figure(
        "Swift: short messages beside a full link",
        "Kumar et al., Swift, SIGCOMM 2020, abstract: a tail below 50 us at a load close to 100 %, near-zero drops",
        "us, and packets",
        (Point("p99 of 4 KB", 50.0, tail * 1e6, "at most"),
         Point("drops", 1.0, float(outcome.counters["drops"]), "at most")),
        read="abstract, 2026-11-16 (near-zero drops: one is allowed here)",
    )  # fmt: skip


def _ndp() -> Figure:
    network = _network(64)
    points = []
    for count in (8, 32, 48):
        outcome = simulate(network, [incast(network.fabric, count, 450e3)], PacketOptions("ndp"))
        points.append(
            Point(f"{count} senders of 450 KB", 1.0, outcome.end_of_run_s / (count * 450e3 * 4162 / 4096 / 50e9))
        )
    return Figure(
        "NDP: incast against the receiver's link",
        "Handley et al., Re-architecting datacenter networks, SIGCOMM 2017: "
        "near-optimal completion times in a wide range of scenarios, including incast",
        "times the bound", tuple(points), read="abstract, 2026-11-16; the bound is the receiver's link",
    )  # fmt: skip


def _spraying() -> Figure:
    """Sixteen flows of a leaf over sixteen uplinks by hash use 1 - (1 - 1/16)^16 of them; sprayed, all."""
    network = _network(64)
    ends = senders(network.fabric)
    goal = np.roll(ends, 16)
    used = []
    for seed in range(12):
        outcome = simulate(network, [messages(ends, goal, 4e6)], PacketOptions("roce", seed=seed), until_s=20e-6)
        up = (network.src >= 0) & (network.src < 4) & (network.dst >= 4)
        used.append(float((outcome.ports["packets"][up] > 20).mean()))
    sprayed = simulate(network, [permutation(network.fabric, 4e6, seed=1)], PacketOptions("ndp"))
    line = 4e6 * 4162 / 4096 / 50e9 / sprayed.end_of_run_s
    return Figure(
        "ECMP's collisions and spraying",
        "n flows into n paths by hash use 1 - (1 - 1/n)^n of them; sprayed packets use all",
        "share",
        (Point("uplinks in use by hash", 1 - (1 - 1 / 16) ** 16, float(np.mean(used))),
         Point("rate of a sprayed permutation", 1.0, line)),
        read="arithmetic: the chance that none of n flows takes a path",
    )  # fmt: skip
