"""The same all-reduce at flow and packet level: equal where queues do not matter, and why not where they do."""

from __future__ import annotations

import numpy as np

from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import Program, lower, packed
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.flow import FlowJob as FlowJob
from syncline.sim.flow.flow import simulate as simulate_flows
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire
from syncline.sim.packet import PacketJob, PacketOptions, packet_network, simulate
from syncline.sim.packet.levels import difference, flow_options

TREE = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}


def cluster(hosts: int, network: object) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": "8 x H100", "network": network}))


def compare(name: str, fabric: Fabric, program: Program, size: int, options: PacketOptions) -> None:
    network = FlowNetwork(fabric, flow_options(options))
    wired = wire(program, network)
    outcome = simulate(packet_network(fabric), [PacketJob(program, size)], options)
    found = difference(outcome, estimate(wired, network, size), wired)
    shares = "".join(f"{round(100 * part['share'], 1) + 0.0:+9.1f}" for part in found.to_json().values())
    by = 100 * (found.packet_s / found.flow_s - 1)
    times = f"{found.flow_s * 1e6:7.1f} {found.packet_s * 1e6:8.1f} us"
    print(f"  {name:8s} {options.transport:5s} {size >> 20:2d} MiB {times} {by:+6.1f} %:{shares}")


rails, tree, small = cluster(16, "rail-optimized NDR"), cluster(16, TREE), cluster(8, "rail-optimized NDR")
PARTS = ("headers", "hops", "queues", "rates", "senders", "sharing", "rest")
print(f"{'flow':>27s} {'packet':>11s} {'by':>8s}  {''.join(f'{part:>9s}' for part in PARTS)}")
print("128 GPUs, rings inside hosts and across")
for name, fabric, transport, size in (
    ("rails", rails, "roce", 64 << 20), ("rails", rails, "ndp", 64 << 20), ("rails", rails, "roce", 1 << 20),
    ("fat-tree", tree, "roce", 64 << 20), ("fat-tree", tree, "ndp", 64 << 20),
):  # fmt: skip
    program = lower(verify(hierarchical((16, 8), Kind.ALL_REDUCE)), packed(fabric))
    compare(name, fabric, program, size, PacketOptions(transport))
print("64 GPUs on rails, one ring over all")
one = lower(verify(ring(64)), packed(small))
for mebibytes, transport, seed in ((4, "roce", 0), (4, "roce", 1), (64, "roce", 1), (64, "dcqcn", 1)):
    compare(f"seed {seed}", small, one, mebibytes << 20, PacketOptions(transport, seed=seed))
network = FlowNetwork(small, flow_options(PacketOptions(seed=1)))
draw = np.random.default_rng(0)
jobs = [FlowJob(one, 4 << 20, compute_s=draw.random(64) * 10e-6) for _ in range(8)]
ends = [simulate_flows([job], network).job_end_s[0] * 1e6 for job in jobs]
print(f"the second at flow level, its ranks beginning up to 10 us apart: {min(ends):.0f} to {max(ends):.0f} us")
print(
    "The same seed draws the same paths, so the levels differ by headers, a packet's time at every hop, and by how\n"
    "messages that meet share a link. Flows that begin together end together, round after round, and wait for their\n"
    "latency together; packets queue, so messages come to take turns and one crosses while the other is on its way.\n"
    "A little unevenness does the same to flows. Rate cuts (dcqcn) cost packets what flows never lose."
)
