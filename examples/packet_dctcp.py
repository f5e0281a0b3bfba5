"""DCTCP holds its queue near the threshold K and swings around it; late flows get their share."""

from __future__ import annotations

import numpy as np

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import Marks, PacketOptions, Watching, messages, packet_network, senders, simulate

SPEC = {
    "hosts": 9,
    "host": {"gpu": "H100", "gpus": 1, "nics": 1},
    "network": {"topology": "fat-tree", "tiers": 1, "link": "NDR"},
}
network = packet_network(build(ClusterSpec.model_validate(SPEC)))
ends = senders(network.fabric)
down = next(int(network.link[p]) for p in range(network.num_ports) if network.dst[p] == -1)

print("DCTCP, two flows, 2 to 6 ms: queue in KB")
for share in (0.25, 1.0, 4.0):
    watching = Watching(1e-6, links=(down,))
    options = PacketOptions("dctcp", marks=Marks(step_bdp=share))
    outcome = simulate(network, [messages(ends[1:3], ends[0], 1e9)], options, watching=watching, until_s=6e-3)
    assert outcome.sampled is not None
    queue = outcome.sampled.queue_bytes[2000:, 0] / 1e3
    threshold = share * 50e9 * outcome.rtt_s / 1e3
    above = queue > threshold
    swings = int(np.count_nonzero(above[1:] & ~above[:-1]))
    print(f"  K {threshold:6.1f}: mean {queue.mean():6.1f}, least {queue.min():6.1f}, most {queue.max():6.1f}; "
          f"crosses K upwards {swings} times")  # fmt: skip

print("\ntwo flows, two more after 1 ms: goodput in GB/s, by millisecond of the end, and Jain's fairness at 30 ms")
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
