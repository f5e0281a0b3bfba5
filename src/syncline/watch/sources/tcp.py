"""TCP segments that were lost on the way, which no interface counts: of the host, and by interface and peer.

Connections come from the kernel's socket table; a captured tree has the host's counters alone.
"""

from __future__ import annotations

import contextlib
import os
import socket

from syncline.errors import WatchError
from syncline.host.netlink import NETLINK_SOCK_DIAG, Netlink, inside
from syncline.host.resent import net_counters, tcp_resent
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

MAX_PEERS = 256
MAX_CONNECTIONS = 20_000
FEW = 256
"""So many connections are read at every look; more of them once a second."""
EVERY = 40
"""Readings after which connections are read though nothing was sent again: the kernel walks all its tables for it."""
SNMP = "/proc/thread-self/net/snmp"

UNREPORTED = 1.5
"""Segments that may have come twice for each that is reported: a report stands for others beside it, or is lost."""


class LostSegments:
    """Counts the segments that were lost among those sent again.

    Packets that overtake each other, or wait long, are sent again without being lost: the receiver then reports what it
    has twice (DSACK), a round trip later. Lost is what no report has excused by the next look.
    """

    def __init__(self, again: int, twice: int) -> None:
        self.total = 0.0
        self._again, self._twice = again, twice
        self.open = 0.0
        """What was sent again since the last look, and may yet be excused."""

    def look(self, again: int, twice: int) -> float:
        """Take both counts; return how many more were lost."""
        excused = UNREPORTED * max(0, twice - self._twice)
        lost = max(0.0, self.open - excused)
        self.open = max(0.0, again - self._again - max(0.0, excused - self.open))
        self._again, self._twice = again, twice
        self.total += lost
        return lost


class TcpSource(CounterSource):
    """Segments sent, sent again, lost and timed out, from /proc/net/snmp and /proc/net/netstat."""

    name = "tcp"

    def __init__(self, root: SourceTree) -> None:
        self._root = root
        self.is_quick = not root.is_host  # there connections say more
        self._lost: LostSegments | None = None

    def read(self) -> Reading:
        """Return the host's TCP counters."""
        snmp, netstat = (self._root.text("proc/net", file) or "" for file in ("snmp", "netstat"))
        sent, again = net_counters(snmp, "Tcp", "OutSegs", "RetransSegs")
        names = ("TCPTimeouts", "TCPDSACKRecvSegs", "TCPDSACKRecv")  # an older kernel counts the reports alone
        timeouts, twice, reports = net_counters(netstat, "TcpExt", *names)
        counted: dict[str, float | None] = {
            "tcp.out_segments": sent, "tcp.retransmitted": again, "tcp.timeouts": timeouts,
        }  # fmt: skip
        if again is not None:
            seen = (again, (reports if twice is None else twice) or 0)
            self._lost = self._lost or LostSegments(*seen)
            self._lost.look(*seen)
            counted["tcp.lost"] = self._lost.total
        return {Key(metric, "host"): number for metric, number in counted.items() if number is not None}


class TcpPathSource(CounterSource):
    """Retransmissions of every established connection, summed by (interface, peer); connections come and go.

    A connection that ends takes its counter with it, so growth is kept here and only ever rises.
    """

    def __init__(self, netns: str | None = None, prefix: str = "") -> None:
        self.name = f"tcp paths {prefix}".strip()
        self.owners: dict[str, str] = {}
        """Device of every address of this namespace."""
        self._prefix = f"{prefix}/" if prefix else ""
        self._num_reads = 0
        self._resent: int | None = None
        self._snmp: int | None = None
        self.is_quick = True
        """Whether there are so few connections that reading them at every look costs next to nothing."""
        self._last: dict[bytes, LostSegments] = {}
        self._totals: dict[tuple[str, str], float] = {}
        self._route: Netlink | None = None
        self._diag: Netlink | None = None
        with contextlib.suppress(WatchError):
            self._route = Netlink(netns)
            self._diag = Netlink(netns, NETLINK_SOCK_DIAG)
        with contextlib.suppress(OSError):  # the file shows the namespace in which it was opened, whoever reads it
            self._snmp = inside(netns, _open_snmp) if netns else _open_snmp()
        if self._diag is None:
            self.problem = "the kernel does not list its connections"

    def read(self) -> Reading:
        """Return segments sent again since this source began, by interface and peer."""
        if self._route is None or self._diag is None:
            return {}
        before, self._resent = self._resent, self._read_resent()
        self._num_reads += 1
        is_open = any(lost.open for lost in self._last.values())
        if self._num_reads % EVERY != 1 and self._resent is not None and before == self._resent and not is_open:
            return self._reading()
        try:
            self._learn_addresses(self._route)
            connections = [c for f in (socket.AF_INET, socket.AF_INET6) for c in self._diag.connections(f)]
            self.is_quick = len(connections) <= FEW
            self.problem = ""
        except OSError as error:
            self.problem = f"sock_diag: {error.strerror or error}"
            return {}
        seen: dict[bytes, LostSegments] = {}
        for connection in connections[:MAX_CONNECTIONS]:
            device = self.owners.get(connection.local)
            if device is None or connection.remote in self.owners:
                continue  # a connection of the host with itself crosses no link
            counts = (connection.again, connection.twice)
            first = (0, 0) if self._last else counts
            lost = seen[connection.cookie] = self._last.get(connection.cookie) or LostSegments(*first)
            path = (device, connection.remote)
            if path in self._totals or len(self._totals) < MAX_PEERS:
                self._totals[path] = self._totals.get(path, 0.0) + lost.look(*counts)
        self._last = seen
        return self._reading()

    def _reading(self) -> Reading:
        return {Key("tcp.path_retransmitted", device, peer): total for (device, peer), total in self._totals.items()}

    def _read_resent(self) -> int | None:
        """Return what the namespace has sent again; None where the kernel does not tell."""
        if self._snmp is None:
            return None
        found = tcp_resent(os.pread(self._snmp, 1 << 14, 0).decode("ascii", "replace"))
        return found.again if found is not None else None

    def close(self) -> None:
        for handle in (self._route, self._diag):
            if handle is not None:
                handle.close()
        if self._snmp is not None:
            os.close(self._snmp)
            self._snmp = None

    def _learn_addresses(self, route: Netlink) -> None:
        names = {interface.number: interface.name for interface in route.interfaces()}
        self.owners = {
            address: self._prefix + names[index] for address, index in route.addresses().items() if index in names
        }


def _open_snmp() -> int:
    return os.open(SNMP, os.O_RDONLY | os.O_CLOEXEC)
