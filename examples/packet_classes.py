"""Storage and telemetry beside a gradient: in its class, behind it, and in a class with a weight."""

from __future__ import annotations

import numpy as np

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, TrafficClass, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
LEAVES = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 8}
network = packet_network(build(ClusterSpec.model_validate({"hosts": 64, "host": HOST, "network": LEAVES})))
ends = senders(network.fabric)
WAYS = (
    ("one class", PacketOptions("roce"), 0),
    ("behind", PacketOptions("roce", classes=(TrafficClass("other", "roce"),)), 1),
    ("weights 3 to 1", PacketOptions("roce", weight=3, classes=(TrafficClass("other", "roce", weight=1),)), 1),
)
gradient = messages(ends[9], ends[0], 8e6)
alone = simulate(network, [gradient], PacketOptions("roce")).job_end_s(0)
print(f"a gradient of 8 MB to host 0: {alone * 1e6:.1f} us alone")

print("while four hosts read 8 MB each from storage to the same host")
storage = messages(ends[16:20], ends[0], 8e6)
for name, options, number in WAYS:
    outcome = simulate(network, [gradient, storage.in_class(number)], options)
    print(f"  {name:14s} gradient {outcome.job_end_s(0) * 1e6:6.1f} us, storage {outcome.job_end_s(1) * 1e6:6.1f} us")

print("while 48 hosts send 2 kB of telemetry there every 10 us")
start = np.repeat(np.arange(0, 160e-6, 10e-6), 48)
telemetry = messages(np.tile(ends[16:64], 16), ends[0], 2e3, start)
for name, options, number in WAYS:
    outcome = simulate(network, [gradient, telemetry.in_class(number)], options)
    last = np.quantile(outcome.times_s(1), 0.99, method="inverted_cdf")
    print(f"  {name:14s} gradient {outcome.job_end_s(0) * 1e6:6.1f} us, telemetry p99 {last * 1e6:6.1f} us")
print("A class of its own gives the gradient its link back; a weight keeps the other traffic from starving meanwhile.")
