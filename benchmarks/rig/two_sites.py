"""Two sites of two hosts: the rig's switch parted in two bridges, with one thin line between them."""

from __future__ import annotations

from rig import network

FAR = "br1"
ENDS = ("line0", "line1")


def part(num_hosts: int, rate_bps: float) -> None:
    """Move the second half of the hosts to a bridge of their own and shape the line between the bridges both ways."""
    inside = ("-n", network.SWITCH, "link")
    network._ip(*inside, "add", FAR, "mtu", str(network.MTU), "type", "bridge")
    network._ip(*inside, "set", FAR, "up")
    for host in range(num_hosts // 2, num_hosts):
        network._ip(*inside, "set", f"p{host}", "master", FAR)
    network._ip(*inside, "add", ENDS[0], "mtu", str(network.MTU), "type", "veth", "peer", "name", ENDS[1])
    limits = ["burst", str(network.BURST_BYTES), "limit", str(network.LIMIT_BYTES)]
    for end, bridge in zip(ENDS, ("br0", FAR), strict=True):
        network._ip(*inside, "set", end, "mtu", str(network.MTU), "master", bridge, "up")
        network._in(
            network.SWITCH, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", f"{rate_bps:.0f}bit", *limits
        )
