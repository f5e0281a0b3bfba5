"""Many send to one: how close to the bound it ends, who pauses, and what pauses do to a bystander."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, TrafficClass, incast, messages, packet_network, senders, simulate

NETWORK = {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": 8}
SPEC = {"hosts": 64, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": NETWORK}
network = packet_network(build(ClusterSpec.model_validate(SPEC)))
ends = senders(network.fabric)

print("messages of 2 MB to one receiver: end over the bound (all wire bytes at the receiver's rate)")
for count in (8, 32, 63):
    cells = []
    for transport in ("roce", "infiniband", "dcqcn", "dctcp", "ndp", "uec"):
        outcome = simulate(
            network,
            [incast(network.fabric, count, 2e6)],
            PacketOptions(transport, pause_bytes=100_000),
        )
        header = {"infiniband": 30, "dctcp": 78}.get(transport, 66)
        bound_s = count * 2e6 * (4096 + header) / 4096 / 50e9
        cells.append(f"{transport} {outcome.end_of_run_s / bound_s:.3f}")
    print(f"  {count:3d} to 1: " + "  ".join(cells))

print("\na bystander: host 9 sends 4 MB into an incast and 4 MB elsewhere; time of the second")
load = messages([*ends[8:12], ends[9]], [*[ends[0]] * 4, ends[20]], 4e6)
alone = simulate(network, [messages(ends[9], ends[20], 4e6)], PacketOptions("roce")).end_of_run_s
for name, options in {
    "pauses": PacketOptions("roce", pause_bytes=40_000),
    "pauses and DCQCN": PacketOptions("dcqcn", pause_bytes=40_000),
    "credits": PacketOptions("infiniband"),
    "trimming": PacketOptions("ndp"),
}.items():
    outcome = simulate(network, [load], options)
    print(
        f"  {name:17s} {outcome.times_s()[4] * 1e6:7.1f} us ({outcome.times_s()[4] / alone:.2f} times alone), "
        f"{outcome.counters['pauses']} pauses"
    )

print("\na gradient of 8 MB while four hosts read 8 MB each from storage to the same host")
gradient, storage = messages(ends[9], ends[0], 8e6), messages(ends[16:20], ends[0], 8e6)
for name, options, number in (
    ("one class", PacketOptions("roce"), 0),
    ("storage behind", PacketOptions("roce", classes=(TrafficClass("storage", "roce"),)), 1),
    ("weights 3 to 1", PacketOptions("roce", weight=3, classes=(TrafficClass("storage", "roce", weight=1),)), 1),
):
    outcome = simulate(network, [gradient, storage.in_class(number)], options)
    print(f"  {name:15s} gradient {outcome.job_end_s(0) * 1e6:7.1f} us, storage {outcome.job_end_s(1) * 1e6:7.1f} us")
