"""What switches keep: packets that came in at their ports and never left again, counted one by one.

Where every port of a switch is read, what came in less what left, was dropped at a queue or waits in one is what the
switch lost. Its ports are not read at one moment, so a packet on its way may be counted twice or not at all; that
mends itself at the next reading, and a loss does not.
"""

from __future__ import annotations

from typing import NamedTuple

from syncline.watch.link_map import LinkMap
from syncline.watch.metric import Key, Reading

LEAST_BYTES = 512.0
"""What is smaller carries no data: acknowledgements and frames for the switch itself, which nobody sends again."""
_GONE = ("net.tx_dropped", "net.rx_dropped", "net.qdisc_drops")


class Balance(NamedTuple):
    """Packets and bytes that came to a switch and did not leave it."""

    packets: float = 0.0
    size_bytes: float = 0.0

    def less(self, other: Balance) -> Balance:
        return Balance(self.packets - other.packets, self.size_bytes - other.size_bytes)


class SwitchLoss:
    """Counts what every switch keeps; nothing where no switch is read."""

    def __init__(self, links: LinkMap) -> None:
        self._source = {device: wire.src for (device, way), wire in links.wires.items() if way == "rx"}
        self._ports: dict[str, list[str]] = {}
        for (device, way), wire in links.wires.items():
            if way == "tx" and "/nic-" not in wire.src:
                self._ports.setdefault(wire.src, []).append(device)
        self._leaf = {
            device: wire.dst for (device, way), wire in links.wires.items() if way == "tx" and "/nic-" in wire.src
        }
        leaves = {wire.name: device for (device, way), wire in links.wires.items() if way == "tx"}
        self._to = {
            device: leaves[wire.name]
            for (device, way), wire in links.wires.items()
            if way == "rx" and "/nic-" in wire.dst and wire.name in leaves
        }
        self._between = [
            (device, wire.src, wire.dst)
            for (device, way), wire in links.wires.items()
            if way == "tx" and "/nic-" not in wire.src and "/nic-" not in wire.dst
        ]
        self._level: dict[str, Balance] = {}
        self._before: dict[str, Balance] = {}

    def look(self, reading: Reading) -> dict[str, float] | None:
        """Return how many packets with data each switch lost since it was last looked at; None where not known.

        Fewer than none where some that seemed lost have left after all.
        """
        now = {name: _balance(reading, ports) for name, ports in self._ports.items()}
        known = {name: balance for name, balance in now.items() if balance is not None}
        if not known or len(known) < len(self._ports):
            self._level.clear()
            self._before.clear()
            return None
        lost = {name: self._count(name, balance) for name, balance in known.items()}
        self._before = known
        return {name: count for name, count in lost.items() if count}

    def _count(self, name: str, now: Balance) -> float:
        """Return what is missing at this reading and was at the one before, and has not been reported yet."""
        before = self._before.get(name, now)
        level = self._level.setdefault(name, now)
        missing = min(now, before)
        if missing.packets < level.packets:
            found = max(now, before)
            if found.packets >= level.packets:
                return 0.0
            self._level[name] = found  # they were on their way, or the switch sent some of its own
            return found.packets - level.packets
        fresh = missing.less(level)
        self._level[name] = missing
        is_data = fresh.size_bytes >= LEAST_BYTES * fresh.packets
        return fresh.packets if is_data else float(fresh.size_bytes >= LEAST_BYTES)

    def leaves(self, src: str, dst: str) -> tuple[str, str] | None:
        """Return the switches at the two ends of a path between devices; None where one is not known."""
        first, last = self._leaf.get(src), self._leaf.get(dst)
        return None if first is None or last is None else (first, last)

    def queues(self, src: str, dst: str) -> set[str]:
        """Return the devices in whose queues packets from one device to another may wait, or their acknowledgements."""
        own = {src, dst, self._to.get(src, ""), self._to.get(dst, "")} - {""}
        ends = self.leaves(src, dst)
        if ends is None or ends[0] == ends[1]:
            return own
        return own | {device for device, *switches in self._between if not set(switches).isdisjoint(ends)}

    def entrance(self, switch: str, neighbour: str, reading: Reading) -> tuple[str, str] | None:
        """Return where packets of a neighbour, or of any other switch, come into a switch; None if they do not."""
        came = [
            device
            for device in self._ports[switch]
            if self._source.get(device, "/nic-") == neighbour
            or (not neighbour and "/nic-" not in self._source.get(device, "/nic-"))
        ]
        if not came:
            return None
        return (max(sorted(came), key=lambda device: reading.get(Key("net.rx_bytes", device), 0.0)), "rx")


def _balance(reading: Reading, ports: list[str]) -> Balance | None:
    """Return what a switch's ports have taken and not given; None if one is not read or is down."""
    packets = size_bytes = 0.0
    for device in ports:
        received, sent = reading.get(Key("net.rx_packets", device)), reading.get(Key("net.tx_packets", device))
        if received is None or sent is None or not reading.get(Key("net.up", device), 1.0):
            return None
        gone = sum(reading.get(Key(name, device), 0.0) for name in _GONE)
        packets += received - sent - gone - reading.get(Key("net.backlog_packets", device), 0.0)
        size_bytes += reading.get(Key("net.rx_bytes", device), 0.0) - reading.get(Key("net.tx_bytes", device), 0.0)
        size_bytes -= reading.get(Key("net.backlog_bytes", device), 0.0)
    return Balance(packets, size_bytes)
