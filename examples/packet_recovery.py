"""Links that destroy packets: go-back-N against selective repeat."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
LEAVES = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}
network = packet_network(build(ClusterSpec.model_validate({"hosts": 16, "host": HOST, "network": LEAVES})))
ends = senders(network.fabric)

print("200 MB over 4 links, each destroying a share of its packets: rate, and packets sent again")
for loss in (0.0, 1e-5, 1e-4, 1e-3):
    cells = []
    for recovery in ("go-back-n", "selective"):
        changes = {"recovery": recovery, "ack_every": 1, "timeout": "200us"}
        options = PacketOptions("line-rate", lossless=False, loss=loss, changes=changes, seed=2)
        outcome = simulate(network, [messages(ends[0], ends[8], 200e6)], options)
        again = outcome.counters["resent_packets"]
        cells.append(f"{recovery} {200e6 / outcome.end_of_run_s / 1e9:6.2f} GB/s, {again:6,} again")
    print(f"  {100 * loss:6.3f} %: " + "; ".join(cells))
print(
    "Go-back-N sends what is under way again for every loss, selective repeat one packet; beside them the timeouts of\n"
    "packets lost twice, which cost both."
)
