"""Interfaces: bytes, packets, errors, drops, speed, state and queue; netlink on a host, files under a captured root."""

from __future__ import annotations

import re

from syncline.errors import WatchError
from syncline.host.netlink import FIELDS, Netlink
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

_PROC_FIELDS = (
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", None, None, None, None,
    "tx_bytes", "tx_packets", "tx_errors", "tx_dropped",
)  # fmt: skip


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
        self._indices: dict[str, int] = {}
        self._route: Netlink | None = None
        if root.is_host:
            try:
                self._route = Netlink(netns)
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
        if self.netns is None:
            self._read_speed(reading)
        if not reading and not self.problem:
            self.problem = f'no interface matches "{self._wanted.pattern}"'
        return reading

    def close(self) -> None:
        if self._route is not None:
            self._route.close()

    def indices(self) -> dict[str, int]:
        """Return the interface number of every wanted device at the last reading, as the burst sampler needs it."""
        return self._indices

    def _read_netlink(self, route: Netlink, reading: dict[Key, float]) -> None:
        statistics = route.statistics()
        queues = route.queues()
        self._indices = {}
        for interface in route.interfaces():
            if not self._wanted.fullmatch(interface.name) or interface.number not in statistics:
                continue
            device = self._prefix + interface.name
            self._indices[device] = interface.number
            reading[Key("net.up", device)] = float(interface.up)
            for field, value in zip(FIELDS, statistics[interface.number], strict=True):
                reading[Key(f"net.{field}", device)] = value
            queue = queues.get(interface.number)
            if queue is not None:
                reading[Key("net.qdisc_drops", device)] = queue.drops
                reading[Key("net.backlog_bytes", device)] = queue.backlog_bytes
                reading[Key("net.backlog_packets", device)] = queue.backlog_packets

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

    def _read_speed(self, reading: dict[Key, float]) -> None:
        """Add the negotiated rate; a virtual interface has none, and one that is down says -1."""
        for key in [key for key in reading if key.metric == "net.rx_bytes"]:
            speed = self._root.number("sys/class/net", key.device.removeprefix(self._prefix), "speed")
            if speed is not None and speed > 0:
                reading[Key("net.speed_Bps", key.device)] = speed * 1e6 / 8
