"""InfiniBand and RoCE ports: sysfs counters, state and rate, by device and port."""

from __future__ import annotations

import re

from syncline.watch.metric import METRICS, Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

_CLASS = "sys/class/infiniband"
_WORDS = ("port_rcv_data", "port_xmit_data")
_KNOWN = frozenset(name.removeprefix("ib.") for name in METRICS if name.startswith("ib."))
_RATE = re.compile(r"([0-9.]+)\s*Gb/sec")


class InfinibandSource(CounterSource):
    """Every port under sysfs; a port whose counters cannot be read is left out, and so is a VF without a PMA."""

    name = "infiniband"

    def __init__(self, root: SourceTree) -> None:
        self._root = root

    def read(self) -> Reading:
        """Return the counters, state and rate of every port."""
        reading: dict[Key, float] = {}
        for device in self._root.names(_CLASS):
            for port in self._root.names(_CLASS, device, "ports"):
                self._read_port(device, port, reading)
        return reading

    def _read_port(self, device: str, port: str, reading: dict[Key, float]) -> None:
        place = f"{_CLASS}/{device}/ports/{port}"
        for folder in ("counters", "hw_counters"):
            for name in self._root.names(place, folder):
                value = self._root.number(place, folder, name) if name in _KNOWN else None
                if value is not None and value >= 0:
                    # IB counts data in lanes' words of four bytes.
                    reading[Key(f"ib.{name}", device, port)] = value * 4 if name in _WORDS else value
        for name in ("state", "phys_state"):
            number = (self._root.text(place, name) or "").partition(":")[0]
            if number.isdecimal():
                reading[Key(f"ib.{name}", device, port)] = int(number)
        rate = _RATE.match(self._root.text(place, "rate") or "")
        if rate:
            reading[Key("ib.rate_Bps", device, port)] = float(rate[1]) * 1e9 / 8
