"""A link that destroys packets: go-back-N against selective repeat, and a link that fails and comes back."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import LinkChange, PacketOptions, messages, packet_network, senders, simulate

NETWORK = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}
SPEC = {"hosts": 16, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": NETWORK}
network = packet_network(build(ClusterSpec.model_validate(SPEC)))
ends = senders(network.fabric)

print("100 MB over 4 links, each losing a share of its packets: rate against that without loss")
for loss in (0.0, 1e-5, 1e-4, 1e-3):
    cells = []
    for recovery in ("go-back-n", "selective"):
        changes = {"recovery": recovery, "ack_every": 1, "timeout": "200us"}
        options = PacketOptions("line-rate", lossless=False, loss=loss, changes=changes, seed=2)
        outcome = simulate(network, [messages(ends[0], ends[8], 100e6)], options)
        cells.append(
            f"{recovery} {100e6 / outcome.end_of_run_s / 1e9:6.2f} GB/s, "
            f"{outcome.counters['resent_packets']:6,} sent again"
        )
    print(f"  {100 * loss:7.3f} %: " + "; ".join(cells))

print("\nthree of a leaf's four uplinks fail at 100 us; routes follow 50 us later; they are repaired at 2 ms")
uplinks = [int(network.link[p]) for p in range(network.num_ports) if network.src[p] == 0 and network.dst[p] >= 0][:3]
down = [LinkChange(100e-6, link, 0.0, 50e-6) for link in uplinks]
back = [LinkChange(2e-3, link, 1.0, 0.0) for link in uplinks]
load = messages(ends[:4], ends[8:12], 40e6)
for transport in ("ndp", "srd", "dctcp"):
    times = [
        simulate(network, [load], PacketOptions(transport), changes=changes) for changes in ([], down, [*down, *back])
    ]
    shown = "  ".join(
        f"{name} {run.end_of_run_s * 1e3:6.3f} ms"
        for name, run in zip(("healthy", "failed", "repaired"), times, strict=True)
    )
    print(f"  {transport:6s} {shown}  lost in the dead links: {times[1].counters['dead']:,}")
