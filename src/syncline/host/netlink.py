"""Raw rtnetlink: interface statistics, link states and queue counters, in a few system calls and without a library.

    with Netlink() as route:
        route.statistics()          # {ifindex: (rx_packets, tx_packets, rx_bytes, tx_bytes, ...)}

pyroute2 answers the same questions in milliseconds; this takes tens of microseconds (see benchmarks/watch.py), which
is what sampling allows. A socket belongs to the network namespace it was opened in and stays there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import NamedTuple, TypeVar

from syncline.errors import WatchError

RTM_GETLINK, RTM_NEWLINK = 18, 16
RTM_GETQDISC, RTM_NEWQDISC = 38, 36
RTM_GETADDR, RTM_NEWADDR = 22, 20
RTM_GETSTATS, RTM_NEWSTATS = 94, 92
SOCK_DIAG_BY_FAMILY, NETLINK_SOCK_DIAG = 20, 4
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
CLONE_NEWNET = 0x40000000
RTMGRP_LINK = 1
IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_CARRIER = 3, 4, 16, 33
IFLA_EXT_MASK, SKIP_STATS = 29, 1 << 3
TCA_KIND, TCA_STATS2, TCA_STATS_QUEUE = 1, 7, 3
TC_H_ROOT = 0xFFFFFFFF
IFA_ADDRESS, IFA_LOCAL = 1, 2
INET_DIAG_INFO = 2
TCP_ESTABLISHED = 1
IFF_UP = 1
OPER_UNKNOWN = 0
OPER_WAITING = (1, 4, 5)
"""Not present, testing, dormant. The kernel may take a second to write down that an interface with a carrier is up."""

# struct nlmsghdr, then: if_stats_msg, ifinfomsg, tcmsg.
_HEADER = struct.Struct("=IHHII")
_STATS_MSG = struct.Struct("=BBHII")
_LINK_MSG = struct.Struct("=BBHiII")
_QDISC_MSG = struct.Struct("=BBHiIII")
_ADDRESS_MSG = struct.Struct("=BBBBI")
_DIAG_SIZE = 72  # struct inet_diag_msg
_RETRANSMITTED_AT, _SEGMENTS_OUT_AT, _DUPLICATES_AT = 100, 136, 216  # in struct tcp_info
_ATTRIBUTE = struct.Struct("=HH")
STATISTICS = struct.Struct("=8Q")
FIELDS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
BUFFER_BYTES = 1 << 18

Result = TypeVar("Result")


class KernelInterface(NamedTuple):
    """One interface as the kernel describes it."""

    number: int
    name: str
    mtu: int
    up: bool


class Queue(NamedTuple):
    """What waits and what was dropped in an interface's queueing discipline."""

    backlog_bytes: int
    drops: int
    backlog_packets: int = 0


class Connection(NamedTuple):
    """A TCP connection: its ends, what tells it from others, segments it sent, and of those how many it sent again.

    What the other end reports to have `twice` (DSACK) was not lost: a probe or a timer that came too soon.
    """

    local: str
    remote: str
    cookie: bytes
    segments: int
    again: int
    twice: int


class Netlink:
    """A netlink socket, optionally of another network namespace (a path such as /run/netns/sw0)."""

    def __init__(self, netns: str | None = None, protocol: int = socket.NETLINK_ROUTE, groups: int = 0) -> None:
        try:
            opened = inside(netns, lambda: open_route(protocol, groups)) if netns else open_route(protocol, groups)
        except OSError as error:
            raise WatchError(
                f"no netlink socket: {error.strerror}.",
                where=netns or "",
                hint="Linux is needed; is the namespace there?",
            ) from None
        self._socket = opened
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)

    def statistics(self) -> dict[int, tuple[int, ...]]:
        """Return the counters in the order of `FIELDS` of every interface."""
        request = _HEADER.pack(28, RTM_GETSTATS, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + _STATS_MSG.pack(0, 0, 0, 0, 1)
        found: dict[int, tuple[int, ...]] = {}
        for start, end in self._dump(request, RTM_NEWSTATS):
            if end - start >= _STATS_MSG.size + _ATTRIBUTE.size + STATISTICS.size:
                ifindex = _STATS_MSG.unpack_from(self._buffer, start)[3]
                found[ifindex] = STATISTICS.unpack_from(self._buffer, start + _STATS_MSG.size + _ATTRIBUTE.size)
        return found

    def interfaces(self) -> list[KernelInterface]:
        """Return every interface with its name, MTU and whether it can carry traffic."""
        options = struct.pack("=HHI", 8, IFLA_EXT_MASK, SKIP_STATS)
        request = _HEADER.pack(40, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(16) + options
        return [self._interface(start, end) for start, end in self._dump(request, RTM_NEWLINK)]

    def moved(self) -> dict[int, tuple[int, int]]:
        """Return received and sent bytes by interface."""
        return {index: (row[2], row[3]) for index, row in self.statistics().items()}

    def queues(self, kinds: Collection[bytes] = ()) -> dict[int, Queue]:
        """Return backlog and drops by interface, as its outermost discipline counts them.

        With `kinds` (b"tbf") those of disciplines of these kinds, of stacked ones the largest.
        """
        request = _HEADER.pack(36, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(20)
        found: dict[int, Queue] = {}
        for start, end in self._dump(request, RTM_NEWQDISC):
            _, _, _, ifindex, _, parent, _ = _QDISC_MSG.unpack_from(self._buffer, start)
            if not kinds and parent != TC_H_ROOT:
                continue  # a card of 64 queues has a discipline for each
            counted = not kinds
            for kind, at, until in self._attributes(start + _QDISC_MSG.size, end):
                if kind == TCA_KIND and kinds:
                    counted = bytes(self._view[at:until]).rstrip(b"\0") in kinds
                elif kind == TCA_STATS2 and counted:
                    before = found.get(ifindex, Queue(0, 0))
                    found[ifindex] = Queue(*map(max, before, self._queue(at, until)))
        return found

    def addresses(self) -> dict[str, int]:
        """Return the interface number of every address."""
        request = _HEADER.pack(24, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(8)
        found: dict[str, int] = {}
        for start, end in self._dump(request, RTM_NEWADDR):
            ifindex = _ADDRESS_MSG.unpack_from(self._buffer, start)[4]
            for kind, at, until in self._attributes(start + _ADDRESS_MSG.size, end):
                if kind in (IFA_ADDRESS, IFA_LOCAL):
                    found[_address(bytes(self._view[at:until]))] = ifindex
        return found

    def connections(self, family: int = socket.AF_INET) -> list[Connection]:
        """Return every established TCP connection; of a socket opened with NETLINK_SOCK_DIAG."""
        options = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, 1 << TCP_ESTABLISHED)
        request = _HEADER.pack(72, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + options + bytes(48)
        size = 4 if family == socket.AF_INET else 16
        found = []
        for start, end in self._dump(request, SOCK_DIAG_BY_FAMILY):
            local, remote = (_address(bytes(self._view[start + at : start + at + size])) for at in (8, 24))
            cookie = bytes(self._view[start + 4 : start + 52])
            for kind, at, until in self._attributes(start + _DIAG_SIZE, end):
                if kind == INET_DIAG_INFO and until - at >= _SEGMENTS_OUT_AT + 4:
                    again = struct.unpack_from("=I", self._buffer, at + _RETRANSMITTED_AT)[0]
                    sent = struct.unpack_from("=I", self._buffer, at + _SEGMENTS_OUT_AT)[0]
                    known = until - at >= _DUPLICATES_AT + 4
                    twice = struct.unpack_from("=I", self._buffer, at + _DUPLICATES_AT)[0] if known else 0
                    found.append(Connection(local, remote, cookie, sent, again, twice))
        return found

    def has_news(self) -> bool:
        """Tell whether the kernel has announced a change since the last call, on a socket opened with `groups`."""
        found = False
        while True:
            try:
                self._socket.recv_into(self._view)
            except BlockingIOError:
                return found
            except OSError:
                return True  # more than the socket holds
            found = True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _dump(self, request: bytes, answer: int) -> Iterator[tuple[int, int]]:
        """Give (start, end) of the body of every message of the answer; valid until the next one is asked for."""
        self._socket.send(request)
        while True:
            size = self._socket.recv_into(self._view)
            at = 0
            while at + _HEADER.size <= size:
                length, kind, _, _, _ = _HEADER.unpack_from(self._buffer, at)
                if kind == NLMSG_DONE or length < _HEADER.size:
                    return
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", self._buffer, at + _HEADER.size)[0]
                    raise OSError(code, os.strerror(code))
                if kind == answer:
                    yield at + _HEADER.size, min(at + length, size)
                at += (length + 3) & ~3

    def _attributes(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        while at + _ATTRIBUTE.size <= end:
            length, kind = _ATTRIBUTE.unpack_from(self._buffer, at)
            if length < _ATTRIBUTE.size:
                return
            yield kind & 0x3FFF, at + _ATTRIBUTE.size, min(at + length, end)
            at += (length + 3) & ~3

    def _interface(self, start: int, end: int) -> KernelInterface:
        _, _, _, index, flags, _ = _LINK_MSG.unpack_from(self._buffer, start)
        name, mtu, state, carrier = f"if{index}", 0, OPER_UNKNOWN, 1
        missing = {IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_CARRIER}
        for kind, at, until in self._attributes(start + _LINK_MSG.size, end):
            if kind not in missing:
                continue
            if kind == IFLA_IFNAME:
                name = bytes(self._view[at:until]).rstrip(b"\0").decode("utf-8", "replace")
            elif kind == IFLA_MTU:
                mtu = struct.unpack_from("=I", self._buffer, at)[0]
            elif kind == IFLA_OPERSTATE:
                state = self._buffer[at]
            elif kind == IFLA_CARRIER:
                carrier = self._buffer[at]
            missing.discard(kind)
            if not missing:
                break  # two thirds of the attributes come after these
        return KernelInterface(index, name, mtu, bool(flags & IFF_UP) and bool(carrier) and state not in OPER_WAITING)

    def _queue(self, start: int, end: int) -> Queue:
        for kind, at, until in self._attributes(start, end):
            if kind == TCA_STATS_QUEUE and until - at >= 12:
                packets, backlog, drops = struct.unpack_from("=III", self._buffer, at)
                return Queue(backlog, drops, packets)
        return Queue(0, 0)


def inside(netns: str, action: Callable[[], Result]) -> Result:
    """Run `action` in another network namespace, in a thread of its own, and return what it returns."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with open(netns, "rb") as handle:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle.fileno(), CLONE_NEWNET):
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), netns)
            results.append(action())
        except BaseException as error:
            errors.append(error)

    # The namespace belongs to the thread, and ends with it.
    thread = threading.Thread(target=run, name="syncline-netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _address(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data) if len(data) in (4, 16) else ""


def open_route(protocol: int = socket.NETLINK_ROUTE, groups: int = 0) -> socket.socket:
    """Return a netlink socket of the namespace this thread is in, which hears what is told to these groups."""
    handle = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    with contextlib.suppress(OSError):
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    handle.bind((0, groups))
    handle.settimeout(0.0 if groups else 2.0)
    return handle
