"""Loss inside a fabric whose switches are read too: what came in at a switch's ports and never left it again.

A connection that sends again tells only that something between its two ends loses. Where every port of the switches
between them is read, the switch that keeps packets says at which of them they vanish, and the path by which link they
had come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from syncline.watch.link_map import LinkMap
from syncline.watch.metric import Key, Reading

WINDOW_S = 1.5
LEAST_PER_S = 4.0
LEAST_SHARE = 0.003
"""A switch keeps packets where it loses more a second, and more of what comes in: frames for itself are few."""
PACKET_BYTES = 1500.0
Path = tuple[str, str]
Port = tuple[str, str]


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
        self._seen: deque[tuple[float, dict[str, tuple[float, float]]]] = deque()

    def look(self, reading: Reading, now_s: float) -> dict[str, float] | None:
        """Return packets a second that each switch keeps; None where that is not known (yet)."""
        totals = {name: _totals(reading, ports) for name, ports in self._ports.items()}
        known = {name: total for name, total in totals.items() if total is not None}
        if not known or len(known) < len(self._ports):
            self._seen.clear()
            return None
        self._seen.append((now_s, known))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        before_s, before = self._seen[0]
        if now_s - before_s < WINDOW_S:
            return None
        kept: dict[str, float] = {}
        for name, (came, went) in known.items():
            came_in = came - before[name][0]
            lost = came_in - (went - before[name][1])
            if lost > LEAST_PER_S * (now_s - before_s) and lost > LEAST_SHARE * came_in:
                kept[name] = lost / (now_s - before_s)
        return kept

    def place(
        self, lossy: Mapping[Path, float], owner: Mapping[str, str], kept: Mapping[str, float],
        rates: Mapping[tuple[str, str], float],
    ) -> dict[Path, Port]:  # fmt: skip
        """Return the port at which a lossy path (device, peer's address) loses; only of paths that share no end.

        Where several share one, that end is the likely place, and what a switch keeps may be another path's.
        """
        ends = Counter(end for device, peer in lossy for end in (device, owner.get(peer, "")))
        found = {}
        for device, peer in lossy:
            other = owner.get(peer, "")
            port = self._port(device, other, kept, rates) if ends[device] == ends[other] == 1 else None
            if port is not None:
                found[device, peer] = port
        return found

    def _port(
        self, src: str, dst: str, kept: Mapping[str, float], rates: Mapping[tuple[str, str], float]
    ) -> Port | None:
        first, last = self._leaf.get(src), self._leaf.get(dst)
        if first is None or last is None or first == last:
            return None
        if first in kept:
            return (src, "tx")
        for name in sorted(set(kept) - {first, last}, key=lambda name: -kept[name]):
            came = [device for device in self._ports[name] if self._source.get(device) == first]
            if came:
                return (_busiest(came, rates), "rx")
        if last in kept:
            came = [device for device in self._ports[last] if "/nic-" not in self._source.get(device, "/nic-")]
            return (_busiest(came, rates), "rx") if came else (src, "tx")
        return (dst, "rx")  # every switch passes on what it gets: it is lost on the last cable


def _busiest(devices: list[str], rates: Mapping[tuple[str, str], float]) -> str:
    return max(sorted(devices), key=lambda device: rates.get(("net.rx_bytes", device), 0.0))


def _totals(reading: Reading, ports: list[str]) -> tuple[float, float] | None:
    """Return packets that came, and that went out, were dropped or wait at a queue; None if a port is not read."""
    came = went = 0.0
    for device in ports:
        received, sent = reading.get(Key("net.rx_packets", device)), reading.get(Key("net.tx_packets", device))
        if received is None or sent is None:
            return None
        came += received
        went += sent + sum(
            reading.get(Key(name, device), 0.0) for name in ("net.tx_dropped", "net.rx_dropped", "net.qdisc_drops")
        )
        went += reading.get(Key("net.backlog_bytes", device), 0.0) / PACKET_BYTES
    return came, went
