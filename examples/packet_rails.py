"""Rail-optimized against fat-tree: an all-reduce whose rings stay on their rail meets no other flow in a switch."""

from __future__ import annotations

from typing import Any

from syncline.fabric import ClusterSpec, build
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.packet import PacketJob, PacketOptions, packet_network, simulate

TREE = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}
FABRICS: dict[str, Any] = {"rail-optimized": "rail-optimized NDR", "fat-tree": TREE}
WAYS = {
    "ECMP": PacketOptions("roce"),
    "adaptive": PacketOptions("roce", "adaptive"),
    "sprayed (NDP)": PacketOptions("ndp"),
}
print("128 GPUs in 16 hosts, all-reduce of 64 MiB in rings inside hosts and across")
for name, between in FABRICS.items():
    spec = {"hosts": 16, "host": "8 x H100", "network": between}
    network = packet_network(build(ClusterSpec.model_validate(spec)))
    program = lower(verify(hierarchical((16, 8), Kind.ALL_REDUCE)), packed(network.fabric))
    cells = []
    for way, options in WAYS.items():
        outcome = simulate(network, [PacketJob(program, 64 << 20)], options)
        cells.append(f"{way} {outcome.job_end_s(0) * 1e6:7.1f} us")
    print(f"  {name:15s} " + "  ".join(cells))
print("On rails hashing has nothing to collide; in the tree it costs a third of the bandwidth unless packets spread.")
