"""Hashing, adaptive routing and spraying for three patterns; rails against a fat-tree; a dragonfly badly used."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.fabric import ClusterSpec, build
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.packet import (
    Job,
    PacketNetwork,
    PacketOptions,
    all_to_all,
    messages,
    packet_network,
    permutation,
    senders,
    simulate,
)


def cluster(hosts: int, host: Any, network: Any) -> PacketNetwork:
    """Return the packet network of a small cluster."""
    return packet_network(build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network})))


ONE = {"gpu": "H100", "gpus": 1, "nics": 1}
WAYS = {
    "ECMP": PacketOptions("roce"),
    "ECMP, 8 queue pairs": PacketOptions("roce", queue_pairs=8),
    "adaptive": PacketOptions("roce", "adaptive"),
    "sprayed (UEC)": PacketOptions("uec"),
    "sprayed (NDP)": PacketOptions("ndp"),
}
tree = cluster(64, ONE, {"topology": "fat-tree", "tiers": 3, "link": "NDR", "hosts_per_leaf": 4, "leaves_per_pod": 4})
ends = senders(tree.fabric)
LOADS = {
    "ring": messages(ends, np.roll(ends, -5), 4e6),
    "permutation": permutation(tree.fabric, 4e6, seed=1),
    "all-to-all": all_to_all(tree.fabric, 65536),
}
print("64 hosts, three tiers, non-blocking: end over the time the access links need")
for name, options in WAYS.items():
    cells = []
    for pattern, load in LOADS.items():
        outcome = simulate(tree, [load], options)
        need_s = load.size_bytes.sum() / 64 * 4162 / 4096 / 50e9
        cells.append(f"{pattern} {outcome.end_of_run_s / need_s:.2f}")
    print(f"  {name:20s} " + "  ".join(cells))

print("\n128 GPUs in 16 hosts, all-reduce of 64 MiB in rings inside hosts and across")
for name, network in (
    ("rail-optimized", "rail-optimized NDR"),
    ("fat-tree", {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}),
):
    fabric = cluster(16, "8 x H100", network)
    program = lower(verify(hierarchical((16, 8), Kind.ALL_REDUCE)), packed(fabric.fabric))
    cells = []
    for way in ("ECMP", "adaptive", "sprayed (NDP)"):
        outcome = simulate(fabric, [Job(program, 64 << 20)], WAYS[way])
        cells.append(f"{way} {outcome.job_end_s(0) * 1e6:7.1f} us")
    print(f"  {name:15s} " + "  ".join(cells))

print("\ndragonfly of 6 groups, one cable between two: every group sends to the next (adversarial), or at random")
dragonfly = cluster(36, ONE, {"topology": "dragonfly", "link": "NDR", "endpoints_per_switch": 2,
                              "switches_per_group": 3,
                              "groups": 6, "cables_per_group_pair": 1})  # fmt: skip
ends = senders(dragonfly.fabric)
for name, routing in (("minimal", "ecmp"), ("Valiant", "valiant"), ("UGAL", "ugal")):
    options = PacketOptions("srd", routing)  # type: ignore[arg-type]
    hard = simulate(dragonfly, [messages(ends, np.roll(ends, -6), 2e6)], options)
    easy = simulate(dragonfly, [permutation(dragonfly.fabric, 2e6)], options)
    print(f"  {name:8s} adversarial {hard.end_of_run_s * 1e6:6.1f} us, random {easy.end_of_run_s * 1e6:6.1f} us")
