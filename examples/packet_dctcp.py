"""DCTCP holds its queue just under the threshold K and swings as the fluid model of its authors says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import Marks, PacketOptions, Watching, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
STAR = {"hosts": 9, "host": HOST, "network": {"topology": "fat-tree", "tiers": 1, "link": "NDR"}}
network = packet_network(build(ClusterSpec.model_validate(STAR)))
ends = senders(network.fabric)
down = next(int(network.link[p]) for p in range(network.num_ports) if network.dst[p] == -1)
PACKET = 4096 + 78

print("DCTCP, queue in packets from 2 to 6 ms; the authors' model: at most K + N, swing sqrt(N (C RTT + K) / 2)")
for flows, share in ((2, 0.1667), (2, 1.0), (2, 4.0), (4, 4.0), (8, 4.0)):
    watching = Watching(1e-6, links=(down,))
    options = PacketOptions("dctcp", marks=Marks(step_bdp=share))
    load = messages(ends[1 : 1 + flows], ends[0], 1e9)
    outcome = simulate(network, [load], options, watching=watching, until_s=6e-3)
    assert outcome.sampled is not None
    queue = outcome.sampled.queue_bytes[2000:, 0] / PACKET
    flight = 50e9 * outcome.rtt_s / PACKET
    mark = share * flight
    swing = np.sqrt(flows * (flight + mark) / 2)
    above = queue > mark
    rises = np.flatnonzero(above[1:] & ~above[:-1])
    swings = [np.ptp(queue[a:b]) for a, b in pairwise(rises)]
    print(f"  {flows} flows, K {mark:5.1f}: mean {queue.mean():5.1f}, "
          f"most {queue.max():5.1f} (model {mark + flows:5.1f}), "
          f"swing {np.median(swings):4.1f} (model {swing:4.1f}), one every {4e3 / len(rises):3.0f} us")  # fmt: skip
print("The queue stays near K and swings as the model says, more with many flows; at the smallest K it runs empty.")
