"""From readings to links: which directed links there are, and what each did since the last reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syncline.watch.burst import Peaks
from syncline.watch.counter import Growth
from syncline.watch.link_map import LinkMap
from syncline.watch.links import LOAD_COLUMNS, LinkLoad, LinkTable
from syncline.watch.loss.lost_packets import LostPackets
from syncline.watch.metric import Key, Reading

IB_ACTIVE = 4
GONE_S = 30.0
"""A link that vanished is shown as down for this long, then forgotten."""


@dataclass(frozen=True)
class _Rule:
    """The metrics that make one direction of a kind of device: bytes, and what counts as drop, error and pause."""

    size: str
    drops: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    pauses: tuple[str, ...] = ()


_RULES: dict[str, dict[str, _Rule]] = {
    "net": {
        "tx": _Rule("net.tx_bytes", ("net.tx_dropped", "net.qdisc_drops"), ("net.tx_errors",), ("eth.pause_rx",)),
        "rx": _Rule("net.rx_bytes", ("net.rx_dropped", "eth.discards"), ("net.rx_errors", "eth.errors"),
                    ("eth.pause_tx",)),
    },
    "ib": {
        "tx": _Rule("ib.port_xmit_data", ("ib.port_xmit_discards", "ib.local_ack_timeout_err", "ib.packet_seq_err"),
                    ("ib.link_downed", "ib.link_error_recovery", "ib.local_link_integrity_errors"),
                    ("ib.port_xmit_wait",)),
        "rx": _Rule("ib.port_rcv_data", ("ib.out_of_sequence", "ib.out_of_buffer"),
                    ("ib.symbol_error", "ib.port_rcv_errors"), ("ib.np_cnp_sent",)),
    },
    "gpu": {
        "tx": _Rule("gpu.nvlink_tx_bytes", (), ("gpu.nvlink_replay_errors", "gpu.nvlink_recovery_errors")),
        "rx": _Rule("gpu.nvlink_rx_bytes", (), ("gpu.nvlink_crc_errors",)),
    },
}  # fmt: skip
_FIRST = {rules["tx"].size: kind for kind, rules in _RULES.items()}
_SIZES = frozenset(rule.size for rules in _RULES.values() for rule in rules.values())
_SPEEDS = {"net.speed_Bps": "net", "ib.rate_Bps": "ib", "gpu.nvlink_rate_Bps": "gpu"}
_TELLING = {**_FIRST, **_SPEEDS}


class LinkReader:
    """Keeps the table of links of one host and fills its columns at every reading."""

    def __init__(self, host: str, links: LinkMap, gone_s: float = GONE_S) -> None:
        self._host = host
        self._map = links
        self._gone_s = gone_s
        self._seen: dict[tuple[str, str], float] = {}
        self._capacity: dict[tuple[str, str], float] = {}
        """The highest rate that each device ever negotiated."""
        self.speed_Bps: dict[str, float] = {}
        """What each device has negotiated now."""
        self.table = _table((), host, links, {}, 0)
        self._filled = _filled(())
        self._far: dict[tuple[str, str], tuple[str, str]] = _far_ends(links)
        self._lost = LostPackets(links)

    def update(
        self,
        reading: Reading,
        grown: Mapping[Key, Growth],
        peaks: Mapping[tuple[str, str], Peaks],
        now_s: float,
        owner: Mapping[str, str] | None = None,
    ) -> LinkLoad:
        """Return what every link did; `table` is then the one the columns belong to."""
        self.speed_Bps = {}
        rose = False
        for key, value in reading.items():
            kind = _TELLING.get(key.metric)
            if kind is None:
                continue
            if key.metric not in _SPEEDS:
                self._seen[kind, _device(key)] = now_s
                continue
            self.speed_Bps[_device(key)] = value
            if value > self._capacity.get((kind, _device(key)), 0.0):  # a later fall is a fault, not a new normal
                self._capacity[kind, _device(key)], rose = value, True
        present = {place: seen for place, seen in self._seen.items() if now_s - seen <= self._gone_s}
        rows = self._rows(present)
        if present.keys() != self._seen.keys() or rose or len(rows) != len(self.table):
            self._seen = present
            self.table = _table(rows, self._host, self._map, self._capacity, self.table.version + 1)
            self._filled = _filled(rows)
        lost = self._lost.update(reading, grown, now_s, owner or {})
        return self._load(reading, _sums(grown), peaks, now_s, lost, rows)

    def capacities(self) -> dict[tuple[str, str], float]:
        """Return the capacity of every (device, direction), as the burst finder wants it."""
        ends = zip(self.table.devices, self.table.directions, strict=True)
        return dict(zip(ends, self.table.capacity_Bps.tolist(), strict=True))

    def _rows(self, places: Mapping[tuple[str, str], float]) -> tuple[tuple[str, str, str], ...]:
        """Return (kind, device, direction) of every link once: not where it arrives, if where it leaves is read too."""
        seen = {device for _, device in places}
        return tuple(
            (kind, device, direction)
            for kind, device in sorted(places)
            for direction in ("tx", "rx")
            if self._far.get((device, direction), ("", ""))[0] not in seen
        )

    def _load(
        self,
        reading: Reading,
        sums: Mapping[tuple[str, str], float],
        peaks: Mapping[tuple[str, str], Peaks],
        now_s: float,
        lost: Mapping[tuple[str, str], float],
        rows: tuple[tuple[str, str, str], ...],
    ) -> LinkLoad:
        load = LinkLoad.empty(len(self.table))
        columns = {name: getattr(load, name) for name in LOAD_COLUMNS}
        # What is lost on the way is laid on a link where it leaves, whichever of its two ends was blamed.
        for far, near in self._far.items():
            if lost.get(far, 0.0) > lost.get(near, 0.0):
                lost = {**lost, near: lost[far]}
        for place, rate in sums.items():
            for name, row in self._filled.get(place, ()):
                columns[name][row] = rate if name == "rate_Bps" else columns[name][row] + rate
        for row, (kind, device, direction) in enumerate(rows):
            if kind == "net" and (device, direction) in lost:
                columns["drops_per_s"][row] = max(columns["drops_per_s"][row], lost[device, direction])
            if kind == "net" and direction == "tx":
                columns["backlog_bytes"][row] = reading.get(Key("net.backlog_bytes", device), 0.0)
            columns["up"][row] = self._seen[kind, device] == now_s and self._is_up(reading, kind, device)
            seen = peaks.get((device, direction)) if kind == "net" else None
            if seen is not None:
                columns["peak_Bps"][row] = seen.peak_Bps
                columns["saturated"][row] = seen.saturated_share
                columns["bursts"][row] = len(seen.bursts)
        return load

    def _is_up(self, reading: Reading, kind: str, device: str) -> bool:
        if kind == "net":
            return bool(reading.get(Key("net.up", device), 1.0))
        if kind == "ib":
            name, _, port = device.partition(":")
            return reading.get(Key("ib.state", name, port), IB_ACTIVE) == IB_ACTIVE
        return reading.get(Key("gpu.nvlinks_active", device), 1.0) > 0


def _device(key: Key) -> str:
    """Return the device as links name it: an InfiniBand port is `mlx5_0:1`; ethtool's parts are the device's own."""
    return f"{key.device}:{key.part}" if key.metric.startswith("ib.") else key.device


def _sums(grown: Mapping[Key, Growth]) -> dict[tuple[str, str], float]:
    """Return rates by (metric, device), summed over priorities and the like: of bytes, and of what else has grown."""
    sums: dict[tuple[str, str], float] = {}
    for key, growth in grown.items():
        if growth.delta or key.metric in _SIZES:
            place = (key.metric, _device(key))
            sums[place] = sums.get(place, 0.0) + growth.rate
    return sums


def _filled(rows: tuple[tuple[str, str, str], ...]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Return by (metric, device) the columns that it fills, with their rows."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row, (kind, device, direction) in enumerate(rows):
        rule = _RULES[kind][direction]
        found.setdefault((rule.size, device), []).append(("rate_Bps", row))
        for column, metrics in (
            ("drops_per_s", rule.drops), ("errors_per_s", rule.errors), ("pauses_per_s", rule.pauses)
        ):  # fmt: skip
            for metric in metrics:
                found.setdefault((metric, device), []).append((column, row))
    return found


def _far_ends(links: LinkMap) -> dict[tuple[str, str], tuple[str, str]]:
    """Return for each (device, "rx") whose link also leaves a device of the map that (device, "tx")."""
    leaves = {wire.name: place for place, wire in links.wires.items() if place[1] == "tx"}
    return {place: leaves[wire.name] for place, wire in links.wires.items() if place[1] == "rx" and wire.name in leaves}


def _table(
    rows: tuple[tuple[str, str, str], ...],
    host: str,
    links: LinkMap,
    capacity: Mapping[tuple[str, str], float],
    version: int,
) -> LinkTable:
    wires = []
    for kind, device, direction in rows:
        wire = links.wire(host, f"gpu-{device}/nvlink" if kind == "gpu" else device, direction)
        known = wire.capacity_Bps if wire.capacity_Bps > 0 else capacity.get((kind, device), np.nan)
        wires.append(wire._replace(capacity_Bps=known))
    return LinkTable.of(wires, [row[1] for row in rows], [row[2] for row in rows], version)
