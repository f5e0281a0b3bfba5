"""The driver's own statistics: pause frames by priority, discards and errors on the wire, through SIOCETHTOOL."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Protocol

from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x1B, 0x1D, 0x37
ETH_SS_STATS = 1
NAME_BYTES = 32
MAX_STATISTICS = 8192

_PAUSE = re.compile(r"(rx|tx)(?:_prio(\d+)|_)?_?(?:global_)?pause(?:_ctrl_phy|_frames)?$")
_DISCARDS = re.compile(
    r"(?:(?:rx|tx)_discards_phy|rx_out_of_buffer|rx_missed_errors|rx_no_buffer\w*|outbound_pci_stalled_\w+)$"
)
_ERRORS = re.compile(
    r"(?:rx_crc_errors(?:_phy)?|rx_symbol_err_phy|rx_pcs_symbol_err_phy|link_down_events_phy|rx_fcs_errors)$"
)


class Driver(Protocol):
    """Reads a device's statistics by name; the seam that tests replace."""

    def __call__(self, device: str) -> Mapping[str, int]: ...


class EthtoolSource(CounterSource):
    """Pause frames, discards and wire errors of the given devices; drivers without statistics are asked once."""

    name = "ethtool"

    def __init__(self, devices: Iterable[str], driver: Driver | None = None) -> None:
        self._driver = driver or IoctlDriver()
        self._devices = list(devices)

    def read(self) -> Reading:
        """Return what the drivers count."""
        reading: dict[Key, float] = {}
        for device in list(self._devices):
            try:
                statistics = self._driver(device)
            except OSError as error:
                if error.errno not in (19, 6):  # ENODEV, ENXIO: the device may come back
                    self._devices.remove(device)
                continue
            for name, value in statistics.items():
                key = _key(device, name)
                if key is not None:
                    reading[key] = reading.get(key, 0) + value
        return reading

    def close(self) -> None:
        if isinstance(self._driver, IoctlDriver):
            self._driver.close()


@cache
def _key(device: str, name: str) -> Key | None:
    pause = _PAUSE.fullmatch(name)
    if pause:
        return Key(f"eth.pause_{pause[1]}", device, pause[2] or "global")
    if _DISCARDS.fullmatch(name):
        return Key("eth.discards", device, name)
    return Key("eth.errors", device, name) if _ERRORS.fullmatch(name) else None


class IoctlDriver:
    """Asks the kernel; keeps each device's names, which do not change, and asks anew when their number does."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._names: dict[str, list[str]] = {}

    def __call__(self, device: str) -> dict[str, int]:
        """Return the statistics of one device by name; an OSError where it has none."""
        count = self._count(device)
        names = self._names.get(device)
        if names is None or len(names) != count:
            names = self._names[device] = self._strings(device, count)
        data = array.array("B", struct.pack("=II", ETHTOOL_GSTATS, count) + bytes(8 * count))
        self._ioctl(device, data)
        return dict(zip(names, struct.unpack_from(f"={count}Q", data, 8), strict=True))

    def close(self) -> None:
        self._socket.close()

    def _count(self, device: str) -> int:
        data = array.array("B", struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
        self._ioctl(device, data)
        _, _, mask, count = struct.unpack_from("=IIQI", data)
        if not mask or not 0 < count <= MAX_STATISTICS:
            raise OSError(95, "the driver has no statistics")
        return int(count)

    def _strings(self, device: str, count: int) -> list[str]:
        data = array.array("B", struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count) + bytes(NAME_BYTES * count))
        self._ioctl(device, data)
        texts = (bytes(data[12 + NAME_BYTES * i : 12 + NAME_BYTES * (i + 1)]) for i in range(count))
        return [text.partition(b"\0")[0].decode("utf-8", "replace").strip() for text in texts]

    def _ioctl(self, device: str, data: array.array[int]) -> None:
        request = struct.pack("=16sQ16x", device.encode()[:15], data.buffer_info()[0])
        fcntl.ioctl(self._socket.fileno(), SIOCETHTOOL, bytearray(request))
