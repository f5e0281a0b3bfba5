"""HPCC's completion times at 30 and 50 % of websearch load against DCQCN's and TIMELY's."""

from __future__ import annotations

import numpy as np
from dumbbell import Dumbbell, dumbbell_trial
from figure import Figure, Point

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, background, packet_network, simulate
from syncline.sim.packet.flow_table import flow_table
from syncline.sim.packet.traffic import WEB_SEARCH


def figures() -> list[Figure]:
    spec = {"hosts": 32, "host": {"gpu": "H100", "gpus": 1, "nics": 1},
            "network": {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 8}}  # fmt: skip
    network = packet_network(build(ClusterSpec.model_validate(spec)))
    points = []
    for load in (0.3, 0.5):
        traffic = background(network.fabric, load, 600e-6, sizes=WEB_SEARCH, seed=1)
        tail = {}
        for name in ("hpcc", "dcqcn", "timely"):
            table = flow_table(simulate(network, [traffic], PacketOptions(name, buffer_bytes=32e6)))
            short = table.slowdown[table.size_bytes <= 30_000]
            tail[name] = float(np.quantile(short, 0.99))
        for other in ("dcqcn", "timely"):
            saved = 1 - tail["hpcc"] / tail[other]
            points += [Point(f"p99 below 30 KB, load {load:g}, over {other}", 0.95, saved, "at most")]
    used = dumbbell_trial(PacketOptions("hpcc"), Dumbbell(4)).utilisation
    source = "Li et al., HPCC, SIGCOMM 2019, abstract: completion times shorter by up to 95 % than DCQCN's and TIMELY's"
    return [
        Figure("HPCC: what it saves of short flows' tail", source, "share saved", tuple(points),
               "The curves by size at 30 and 50 % are not drawn: the paper and the authors' results page have them as "
               "pictures only, and their repository has the scripts that make them, but no results.",
               read="abstract, 2026-11-16; results page and the repository's analysis folder, 2026-11-17"),
        Figure("HPCC: use of the link", "the same, section 3.2: eta = 0.95", "share of the line",
               (Point("4 flows", 0.95, used),),
               read="eta of the paper's evaluation on the authors' project page, 2026-11-16"),
    ]  # fmt: skip
