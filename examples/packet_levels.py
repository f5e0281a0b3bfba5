"""The same all-reduce at flow and packet level: equal where queues do not matter, and why not where they do."""

from __future__ import annotations

from typing import Any

from syncline.fabric import ClusterSpec, build
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.flow import Job as FlowJob
from syncline.sim.flow import simulate as simulate_flows
from syncline.sim.packet import Job, PacketOptions, packet_network, simulate
from syncline.sim.routing import Network, NetworkOptions

TREE = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}
FABRICS: dict[str, Any] = {"rails": "rail-optimized NDR", "fat-tree": TREE}
CASES = (("rails", "roce", 64 << 20), ("rails", "ndp", 64 << 20), ("rails", "roce", 1 << 20),
         ("fat-tree", "roce", 64 << 20), ("fat-tree", "ndp", 64 << 20))  # fmt: skip
built = {
    name: build(ClusterSpec.model_validate({"hosts": 16, "host": "8 x H100", "network": between}))
    for name, between in FABRICS.items()
}
print("128 GPUs, all-reduce in rings inside hosts and across")
for name, transport, size in CASES:
    fabric = built[name]
    program = lower(verify(hierarchical((16, 8), Kind.ALL_REDUCE)), packed(fabric))
    flow_s = simulate_flows([FlowJob(program, size)], Network(fabric, NetworkOptions(transport="ideal"))).job_end_s[0]
    outcome = simulate(packet_network(fabric), [Job(program, size)], PacketOptions(transport))
    took_s, count = outcome.job_end_s(0), outcome.counters
    deep = outcome.ports["peak_bytes"].max() / 1e3
    print(f"  {name:8s} {transport:4s} {size >> 20:2d} MiB: flow {flow_s * 1e6:6.1f} us, packet {took_s * 1e6:6.1f} us "
          f"({100 * (took_s / flow_s - 1):+5.1f} %), queue up to {deep:5,.0f} KB, {count['pauses']} pauses, "
          f"{count['trims']} trims")  # fmt: skip
print(
    "With one path a flow the levels agree to headers and a packet's time at every hop, also where flows collide and\n"
    "wait in queues. They differ where packets do what flows cannot: spraying uses the links that a hash leaves idle."
)
