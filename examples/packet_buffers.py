"""How much buffer a port needs, in microseconds of its rate, for 32 senders that start together."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, incast, packet_network, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
LEAVES = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 8}
network = packet_network(build(ClusterSpec.model_validate({"hosts": 64, "host": HOST, "network": LEAVES})))

print("32 to 1, 1 MB each, lossy; bound 652 us (DCTCP and CUBIC) or 650 us (NDP)")
for transport in ("dctcp", "cubic", "ndp"):
    print(f"  {transport}")
    for depth_us in (1, 4, 16, 64, 256):
        options = PacketOptions(transport, queue_bytes=round(depth_us * 50e3))
        outcome = simulate(network, [incast(network.fabric, 32, 1e6)], options)
        count = outcome.counters
        print(f"    {depth_us:4d} us: ends {outcome.end_of_run_s * 1e6:9,.1f} us, p50 "
              f"{outcome.completion.p50_s * 1e6:8,.1f} us, {count['drops']:6,} drops, {count['trims']:6,} trims, "
              f"{count['timeouts']:3} timeouts")  # fmt: skip
print(
    "DCTCP needs room for what its first windows bring; CUBIC fills any buffer until it drops and waits for timeouts;\n"
    "NDP trims and needs none."
)
