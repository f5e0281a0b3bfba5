"""One bottleneck, packet by packet: what each transport makes of it, large packets against small, how much buffer."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, Watching, messages, packet_network, senders, simulate

SPEC = {
    "hosts": 9,
    "host": {"gpu": "H100", "gpus": 1, "nics": 1},
    "network": {"topology": "fat-tree", "tiers": 1, "link": "NDR"},
}
network = packet_network(build(ClusterSpec.model_validate(SPEC)))
ends = senders(network.fabric)
down = next(int(network.link[p]) for p in range(network.num_ports) if network.dst[p] == -1)

print("two senders, one 400 Gb/s link: share of the link's time used, 0.5 to 2 ms")
for transport in (
    "line-rate",
    "infiniband",
    "dcqcn",
    "dctcp",
    "swift",
    "hpcc",
    "timely",
    "cubic",
    "ndp",
    "eqds",
    "uec",
    "srd",
):
    load, watching = messages(ends[1:3], ends[0], 80e6), Watching(10e-6, links=(down,))
    outcome = simulate(network, [load], PacketOptions(transport=transport), watching=watching, until_s=2e-3)
    assert outcome.sampled is not None
    used = outcome.sampled.link_Bps()[50:].mean() / 50e9
    print(f"  {transport:10s} {100 * used:6.2f} %   queue at most {outcome.ports['peak_bytes'].max() / 1e3:8.0f} KB")

print("\none message of 100 MB by packet size (wire bytes 66 more): payload rate against the closed form")
for payload in (1434, 4096, 8934):
    took_s = simulate(
        network, [messages(ends[1], ends[0], 100e6)], PacketOptions("line-rate", payload_bytes=payload)
    ).end_of_run_s
    print(f"  {payload + 66:5d}: {100e6 / took_s / 1e9:6.3f} GB/s, at best {50 * payload / (payload + 66):6.3f}")

print("\neight senders of 4 MB, lossy DCTCP by buffer, in microseconds of the link's rate")
for depth_us in (4, 16, 64, 256):
    options = PacketOptions("dctcp", queue_bytes=round(depth_us * 50e3))
    outcome = simulate(network, [messages(ends[1:9], ends[0], 4e6)], options)
    count = outcome.counters
    print(f"  {depth_us:4d} us: {outcome.end_of_run_s * 1e6:8.1f} us (bound {8 * 4e6 * 4174 / 4096 / 50e3:.1f}), "
          f"{count['drops']:5,} drops, {count['timeouts']:3} timeouts")  # fmt: skip
