"""Loss inside a fabric whose switches are read too: what came in at a switch's ports and never left it again.

A connection that sends again tells only that something between its two ends loses. Where every port of the switches
between them is read, the switch that keeps packets says at which of them they vanish, and the path by which link they
had come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from syncline.watch.link_map import LinkMap
from syncline.watch.metric import Key, Reading

WINDOW_S, SLOW_S = 1.5, 10.0
LEAST = {WINDOW_S: (4.0, 0.003), SLOW_S: (0.5, 0.0003)}
"""A switch keeps packets where it loses more a second, and more of what comes in: frames for itself are few. A long
time shows less."""
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
        self._seen: deque[tuple[float, dict[str, _Totals]]] = deque()
        self._unseen_per_s = 0.0

    def look(self, reading: Reading, now_s: float) -> dict[str, float] | None:
        """Return packets a second that each switch keeps; None where that is not known (yet)."""
        totals = {name: _totals(reading, ports) for name, ports in self._ports.items()}
        known = {name: total for name, total in totals.items() if total is not None}
        if not known or len(known) < len(self._ports):
            self._seen.clear()
            return None
        self._seen.append((now_s, known))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= SLOW_S:
            self._seen.popleft()
        kept: dict[str, float] | None = None
        for window_s, (least_per_s, least_share) in LEAST.items():
            before = next((past for past in reversed(self._seen) if now_s - past[0] >= window_s), None)
            if before is None:
                break
            kept = kept or {}
            self._unseen_per_s = 0.0
            for name, total in known.items():
                over_s, past = now_s - before[0], before[1][name]
                came_in = (total.came - past.came) / over_s
                lost = came_in - (total.went - past.went) / over_s
                least = max(least_per_s, least_share * came_in)
                self._unseen_per_s = max(self._unseen_per_s, least * total.segments)
                if lost > least:
                    kept.setdefault(name, lost)
        return kept

    def place(
        self, lossy: Mapping[Path, float], owner: Mapping[str, str], kept: Mapping[str, float],
        rates: Mapping[tuple[str, str], float],
    ) -> dict[Path, Port | None]:  # fmt: skip
        """Return the port at which a lossy path (device, peer's address) loses; only of paths that share no end.

        Where several share one, that end is the likely place, and what a switch keeps may be another path's. None: it
        loses so little that a switch may keep as much unseen.
        """
        ends = Counter(end for device, peer in lossy for end in (device, owner.get(peer, "")))
        found: dict[Path, Port | None] = {}
        for (device, peer), rate in lossy.items():
            other = owner.get(peer, "")
            port = self._port(device, other, kept, rates) if ends[device] == ends[other] == 1 else None
            if port is not None:
                is_default = port == (other, "rx") and not kept
                found[device, peer] = None if is_default and rate <= self._unseen_per_s else port
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


class _Totals(NamedTuple):
    """Packets that came to a switch, and that went out, were dropped or wait; how many segments make one of them."""

    came: float
    went: float
    segments: float


def _totals(reading: Reading, ports: list[str]) -> _Totals | None:
    """Return what a switch's ports have counted; None if one is not read."""
    came = went = carried_bytes = 0.0
    for device in ports:
        received, sent = reading.get(Key("net.rx_packets", device)), reading.get(Key("net.tx_packets", device))
        if received is None or sent is None:
            return None
        came += received
        carried_bytes += reading.get(Key("net.rx_bytes", device), 0.0)
        went += sent + sum(
            reading.get(Key(name, device), 0.0) for name in ("net.tx_dropped", "net.rx_dropped", "net.qdisc_drops")
        )
        # A packet of a host that leaves cutting to its NIC is as large as sixty on the wire.
        size = max(PACKET_BYTES, reading.get(Key("net.tx_bytes", device), 0.0) / max(sent, 1.0))
        went += reading.get(Key("net.backlog_bytes", device), 0.0) / size
    return _Totals(came, went, max(1.0, carried_bytes / PACKET_BYTES / max(came, 1.0)))
