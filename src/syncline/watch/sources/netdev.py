"""Interfaces: bytes, packets, errors, drops, speed, state and queue; netlink on a host, files under a captured root."""

from __future__ import annotations

import re
from typing import NamedTuple

from syncline.errors import WatchError
from syncline.host.netlink import FIELDS, RTMGRP_LINK, Netlink
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

_PROC_FIELDS = (
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", None, None, None, None,
    "tx_bytes", "tx_packets", "tx_errors", "tx_dropped",
)  # fmt: skip
_QUEUE = ("backlog_bytes", "qdisc_drops", "backlog_packets")
CHECK_EVERY = 20
"""Readings after which states and speeds are asked for again though the kernel has announced no change."""


class _Interface(NamedTuple):
    """An interface as it was when the kernel last announced a change: what is not counted, and the keys of the rest."""

    number: int
    state: dict[Key, float]
    counters: tuple[Key, ...]
    queue: tuple[Key, ...]


class NetdevSource(CounterSource):
    """Interfaces whose name matches `pattern`; of another network namespace when `netns` names one.

    Devices of a namespace are called `prefix/eth0`, so that several switches of a lab can be read by one agent.
    """

    def __init__(
        self, root: SourceTree, *, pattern: str = r"(?!lo$).*", netns: str | None = None, prefix: str = ""
    ) -> None:
        self.name = f"netdev {prefix}".strip()
        self._root = root
        self._wanted = re.compile(pattern)
        self._prefix = f"{prefix}/" if prefix else ""
        self.netns = netns
        self._interfaces: dict[str, _Interface] = {}
        self._num_reads = 0
        self._route: Netlink | None = None
        if root.is_host:
            try:
                self._news, self._route = Netlink(netns, groups=RTMGRP_LINK), Netlink(netns)
            except WatchError as error:
                self.problem = error.message
        if netns and self._route is None:
            raise WatchError("cannot read the interfaces of this network namespace.", where=netns, hint=self.problem)

    def read(self) -> Reading:
        """Return counters and states of every wanted interface."""
        reading: dict[Key, float] = {}
        if self._route is not None:
            try:
                self._read_netlink(self._route, reading)
                self.problem = ""
            except OSError as error:
                self.problem = f"netlink: {error.strerror or error}"
                reading.clear()
        if not reading and self.netns is None:
            self._read_files(reading)
        if not reading and not self.problem:
            self.problem = f'no interface matches "{self._wanted.pattern}"'
        return reading

    def close(self) -> None:
        if self._route is not None:
            self._route.close()
            self._news.close()

    def indices(self) -> dict[str, int]:
        """Return the interface number of every wanted device at the last reading, as the burst sampler needs it."""
        return {device: interface.number for device, interface in self._interfaces.items()}

    def _read_netlink(self, route: Netlink, reading: dict[Key, float]) -> None:
        if self._news.has_news() or self._num_reads % CHECK_EVERY == 0:
            self._interfaces = self._find(route)
        self._num_reads += 1
        statistics, queues = route.statistics(), route.queues()
        for interface in self._interfaces.values():
            if interface.number not in statistics:
                continue
            reading.update(interface.state)
            reading.update(zip(interface.counters, statistics[interface.number], strict=True))
            if interface.number in queues:
                reading.update(zip(interface.queue, queues[interface.number], strict=True))

    def _find(self, route: Netlink) -> dict[str, _Interface]:
        """Return the wanted interfaces by device."""
        found = {}
        for interface in route.interfaces():
            if not self._wanted.fullmatch(interface.name):
                continue
            device, known = self._prefix + interface.name, self._interfaces.get(self._prefix + interface.name)
            state = {Key("net.up", device): float(interface.up), **(self._speed(device) if self.netns is None else {})}
            if known is None:
                counters, queue = (tuple(Key(f"net.{name}", device) for name in names) for names in (FIELDS, _QUEUE))
                known = _Interface(0, {}, counters, queue)
            found[device] = known._replace(number=interface.number, state=state)
        return found

    def _read_files(self, reading: dict[Key, float]) -> None:
        for line in (self._root.text("proc/net/dev") or "").splitlines():
            name, colon, rest = line.partition(":")
            device, numbers = name.strip(), rest.split()
            if not colon or len(numbers) < len(_PROC_FIELDS) or not self._wanted.fullmatch(device):
                continue
            for field, number in zip(_PROC_FIELDS, numbers, strict=False):
                if field and number.isdecimal():
                    reading[Key(f"net.{field}", self._prefix + device)] = int(number)
            state = self._root.text("sys/class/net", device, "operstate")
            if state is not None:
                reading[Key("net.up", self._prefix + device)] = float(state in ("up", "unknown"))
            reading.update(self._speed(self._prefix + device))

    def _speed(self, device: str) -> dict[Key, float]:
        """Return the negotiated rate; a virtual interface has none, and one that is down says -1."""
        speed = self._root.number("sys/class/net", device.removeprefix(self._prefix), "speed")
        return {Key("net.speed_Bps", device): speed * 1e6 / 8} if speed is not None and speed > 0 else {}
