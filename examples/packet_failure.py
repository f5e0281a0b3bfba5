"""Three of a leaf's four uplinks fail, routes follow, and the links come back."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import LinkChange, PacketOptions, messages, packet_network, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
LEAVES = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 4}
network = packet_network(build(ClusterSpec.model_validate({"hosts": 16, "host": HOST, "network": LEAVES})))
ends = senders(network.fabric)

print("four hosts of a leaf send 40 MB; three of its uplinks fail at 100 us, routes follow 50 us later, repair at 2 ms")
uplinks = [int(network.link[p]) for p in range(network.num_ports) if network.src[p] == 0 and network.dst[p] >= 0][:3]
down = [LinkChange(100e-6, link, 0.0, 50e-6) for link in uplinks]
back = [LinkChange(2e-3, link, 1.0, 0.0) for link in uplinks]
load = messages(ends[:4], ends[8:12], 40e6)
for transport in ("ndp", "srd", "dctcp"):
    runs = [
        simulate(network, [load], PacketOptions(transport), changes=changes) for changes in ([], down, [*down, *back])
    ]
    shown = "  ".join(
        f"{name} {run.end_of_run_s * 1e3:6.3f} ms"
        for name, run in zip(("healthy", "failed", "repaired"), runs, strict=True)
    )
    print(f"  {transport:6s} {shown}  lost in the dead links: {runs[1].counters['dead']:,}")
print("Sprayed transports fall to the links that are left and rise with the repair; a hashed one keeps its one path.")
