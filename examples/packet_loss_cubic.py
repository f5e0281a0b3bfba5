"""One packet in ten thousand lost: what CUBIC keeps of 400 Gb/s over a short and over a long path."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
SIZE = 200e6

print("200 MB by CUBIC over 4 links of 400 Gb/s, 0.01 % of the packets destroyed, against none")
for metres in (10, 500):
    leaves = {"topology": "fat-tree", "tiers": 2, "link": "400GbE", "hosts_per_leaf": 4,
              "lengths": {"access": 10, "leaf_spine": metres}}  # fmt: skip
    network = packet_network(build(ClusterSpec.model_validate({"hosts": 16, "host": HOST, "network": leaves})))
    ends = senders(network.fabric)
    times = [
        simulate(network, [messages(ends[0], ends[8], SIZE)], PacketOptions("cubic", loss=loss, seed=2)).end_of_run_s
        for loss in (0.0, 1e-4)
    ]
    print(f"  {metres:>3} m: {100 * times[0] / times[1]:5.1f} % left ({SIZE / times[1] / 1e9:.1f} GB/s)")
print("A loss halves the window; a longer path takes longer to open it again.")
