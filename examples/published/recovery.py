"""Go-back-N and selective repeat by loss, and IRN against RoCE with pauses."""

from __future__ import annotations

import numpy as np
from figure import Figure, Point

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketNetwork, PacketOptions, background, messages, packet_network, senders, simulate
from syncline.sim.packet.flow_table import flow_table
from syncline.sim.packet.traffic import WEB_SEARCH

TREE = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}


def _network(hosts: int) -> PacketNetwork:
    spec = {"hosts": hosts, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": TREE}
    return packet_network(build(ClusterSpec.model_validate(spec)))


def figures() -> list[Figure]:
    return [_by_loss(), _irn()]


def _by_loss() -> Figure:
    network = _network(16)
    ends = senders(network.fabric)
    points = []
    for loss in (1e-4, 1e-3, 3e-3):
        for recovery in ("go-back-n", "selective"):
            changes = {"recovery": recovery, "ack_every": 1, "timeout": "100us"}
            options = PacketOptions("line-rate", lossless=False, loss=loss / 4, changes=changes, seed=2)
            outcome = simulate(network, [messages(ends[0], ends[8], 200e6)], options)
            flight = outcome.rtt_s * 50e9 / 4162
            best = (1 - loss) / (1 - loss + loss * flight) if recovery == "go-back-n" else 1 - loss
            points.append(Point(f"{recovery}, loss {loss:g}", best, 200e6 * 4162 / 4096 / outcome.end_of_run_s / 50e9))
    return Figure(
        "Go-back-N and selective repeat by loss",
        "Bertsekas and Gallager, Data Networks, 2.4: (1 - p) / (1 - p + p W), and 1 - p",
        "share of the line", tuple(points),
        "Lost acknowledgements and timeouts, which the formula leaves out, cost the rest at 3 in 1,000.",
        "abstract of The throughput efficiency of the go-back-N ARQ scheme under Markov and related error structures, "
        "2026-11-16: p / (p + m (1 - p)) with p the chance of success; 1 - p is what is left of the line",
    )  # fmt: skip


def _irn() -> Figure:
    network = _network(32)
    load = background(network.fabric, 0.7, 400e-6, sizes=WEB_SEARCH, seed=3)
    mean = {}
    for name, options in (
        ("irn", PacketOptions("irn", buffer_bytes=12e6)),
        ("roce", PacketOptions("roce", buffer_bytes=12e6)),
    ):
        mean[name] = float(np.mean(flow_table(simulate(network, [load], options)).slowdown))
    better = 1 - mean["irn"] / mean["roce"]
    return Figure(
        "IRN without pauses against RoCE with them",
        "Mittal et al., Revisiting Network Support for RDMA, SIGCOMM 2018, abstract: 6 to 83 % better",
        "mean slowdown, share saved",
        (Point("websearch at load 0.7", 0.06, better, "at least"),
         Point("websearch at load 0.7", 0.83, better, "at most")),
        read="abstract, 2026-11-16",
    )  # fmt: skip
