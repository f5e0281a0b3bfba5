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
_UP = {"net": 1.0, "ib": 4.0, "gpu": 1.0}
"""The least state in which a device of each kind is up; an InfiniBand port is active at 4."""


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
        self._keys: tuple[Key, ...] = ()
        self._present: list[tuple[str, str]] = []
        self._speeds: list[tuple[Key, str, str]] = []
        self._lay_down((), 0)
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
        keys = tuple(reading)
        if keys != self._keys:  # the same as before, most of the time
            self._keys = keys
            self._present = [(_FIRST[key.metric], _device(key)) for key in keys if key.metric in _FIRST]
            self._speeds = [(key, _SPEEDS[key.metric], _device(key)) for key in keys if key.metric in _SPEEDS]
        num_seen, rose = len(self._seen), False
        self._seen.update(dict.fromkeys(self._present, now_s))
        self.speed_Bps = {device: reading[key] for key, _, device in self._speeds}
        for key, kind, device in self._speeds:
            if reading[key] > self._capacity.get((kind, device), 0.0):  # a later fall is a fault, not a new normal
                self._capacity[kind, device], rose = reading[key], True
        gone = [place for place, seen_s in self._seen.items() if now_s - seen_s > self._gone_s]
        for place in gone:
            del self._seen[place]
        if gone or rose or len(self._seen) != num_seen:
            self._lay_down(self._links(), self.table.version + 1)
        lost = self._lost.update(reading, grown, now_s, owner or {})
        return self._load(reading, grown, peaks, now_s, lost)

    def _lay_down(self, rows: tuple[tuple[str, str, str], ...], version: int) -> None:
        """Make the table of these links."""
        self.table = _table(rows, self._host, self._map, self._capacity, version)
        self._rows, self._filled = rows, _filled(rows)
        self._columns: dict[Key, list[tuple[str, int]]] = {}
        self._states = [(_state_key(kind, device), Key("net.backlog_bytes", device)) for kind, device, _ in rows]

    def capacities(self) -> dict[tuple[str, str], float]:
        """Return the capacity of every (device, direction), as the burst finder wants it."""
        ends = zip(self.table.devices, self.table.directions, strict=True)
        return dict(zip(ends, self.table.capacity_Bps.tolist(), strict=True))

    def _links(self) -> tuple[tuple[str, str, str], ...]:
        """Return (kind, device, direction) of every link once: not where it arrives, if where it leaves is read too."""
        seen = {device for _, device in self._seen}
        return tuple(
            (kind, device, direction)
            for kind, device in sorted(self._seen)
            for direction in ("tx", "rx")
            if self._far.get((device, direction), ("", ""))[0] not in seen
        )

    def _load(
        self,
        reading: Reading,
        grown: Mapping[Key, Growth],
        peaks: Mapping[tuple[str, str], Peaks],
        now_s: float,
        lost: Mapping[tuple[str, str], float],
    ) -> LinkLoad:
        load = LinkLoad.empty(len(self.table))
        columns = {name: getattr(load, name) for name in LOAD_COLUMNS}
        # What is lost on the way is laid on a link where it leaves, whichever of its two ends was blamed.
        for far, near in self._far.items():
            if lost.get(far, 0.0) > lost.get(near, 0.0):
                lost = {**lost, near: lost[far]}
        for key, growth in grown.items():
            if growth.delta or key.metric in _SIZES:
                if key not in self._columns:
                    self._columns[key] = self._filled.get((key.metric, _device(key)), [])
                for name, row in self._columns[key]:  # parts such as priorities add up
                    known = columns[name][row]
                    columns[name][row] = growth.rate + (0.0 if np.isnan(known) else known)
        for row, (kind, device, direction) in enumerate(self._rows):
            state, backlog = self._states[row]
            if kind == "net" and (device, direction) in lost:
                columns["drops_per_s"][row] = max(columns["drops_per_s"][row], lost[device, direction])
            if kind == "net" and direction == "tx":
                columns["backlog_bytes"][row] = reading.get(backlog, 0.0)
            columns["up"][row] = self._seen[kind, device] == now_s and reading.get(state, _UP[kind]) >= _UP[kind]
            seen = peaks.get((device, direction)) if kind == "net" else None
            if seen is not None:
                columns["peak_Bps"][row] = seen.peak_Bps
                columns["saturated"][row] = seen.saturated_share
                columns["bursts"][row] = len(seen.bursts)
        return load


def _device(key: Key) -> str:
    """Return the device as links name it: an InfiniBand port is `mlx5_0:1`; ethtool's parts are the device's own."""
    return f"{key.device}:{key.part}" if key.metric.startswith("ib.") else key.device


def _state_key(kind: str, device: str) -> Key:
    """Return what tells whether a device is up."""
    if kind == "ib":
        return Key("ib.state", *device.partition(":")[::2])
    return Key("net.up" if kind == "net" else "gpu.nvlinks_active", device)


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
