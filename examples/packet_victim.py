"""Pauses punish a bystander: a host in an incast also sends elsewhere, over links that are not busy."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
LEAVES = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 8}
network = packet_network(build(ClusterSpec.model_validate({"hosts": 64, "host": HOST, "network": LEAVES})))
ends = senders(network.fabric)

print("hosts 8 to 11 send 4 MB to host 0; host 9 sends 4 MB to host 20 as well: time of that one")
load = messages([*ends[8:12], ends[9]], [*[ends[0]] * 4, ends[20]], 4e6)
alone_s = simulate(network, [messages(ends[9], ends[20], 4e6)], PacketOptions("roce")).end_of_run_s
for name, options in {
    "pauses": PacketOptions("roce", pause_bytes=40_000),
    "pauses and DCQCN": PacketOptions("dcqcn", pause_bytes=40_000),
    "credits": PacketOptions("infiniband"),
    "trimming": PacketOptions("ndp"),
}.items():
    outcome = simulate(network, [load], options)
    took_s, pauses = float(outcome.times_s()[4]), outcome.counters["pauses"]
    print(f"  {name:17s} {took_s * 1e6:6.1f} us, {took_s / alone_s:.2f} times alone; {pauses} pauses")
print("A pause stops the whole class of a cable, so the bystander waits for an incast it has no part in; so do\n"
      "credits of one lane. Sharing its own link fairly would take twice alone: trimming stays under it.")  # fmt: skip
