"""Two connections, two more a millisecond later: DCQCN, Swift and DCTCP come to equal shares, at their own pace."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, Watching, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
STAR = {"hosts": 9, "host": HOST, "network": {"topology": "fat-tree", "tiers": 1, "link": "NDR"}}
network = packet_network(build(ClusterSpec.model_validate(STAR)))
ends = senders(network.fabric)

print("goodput of four connections in GB/s in the millisecond before; fairness (Jain's) and sum over the last 5 ms")
for transport in ("dcqcn", "swift", "dctcp"):
    watching = Watching(1e-3, flows=(0, 1, 2, 3))
    load = messages(ends[1:5], ends[0], 2e9, [0.0, 0.0, 1e-3, 1e-3])
    outcome = simulate(network, [load], PacketOptions(transport), watching=watching, until_s=30e-3)
    assert outcome.sampled is not None
    rates = outcome.sampled.goodput_Bps() / 1e9
    print(f"  {transport}")
    for at_ms in (1, 3, 10, 29):
        print(f"    {at_ms:3d} ms: " + "  ".join(f"{rate:5.2f}" for rate in rates[at_ms - 1]))
    last = rates[-5:].mean(axis=0)
    print(f"    fairness {last.sum() ** 2 / (4 * (last**2).sum()):.3f}, together {last.sum():.1f} GB/s")
print("All end fair, Swift and DCTCP within 2 ms, DCQCN, which adds a thousandth of the rate at a time, after 20.")
