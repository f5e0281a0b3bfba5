"""Loss that no interface counts: segments TCP sent again, by interface and peer, from the kernel's socket table."""

from __future__ import annotations

import contextlib
import os
import socket

from syncline.errors import WatchError
from syncline.host.netlink import NETLINK_SOCK_DIAG, Netlink, inside
from syncline.host.resent import tcp_resent
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource
from syncline.watch.sources.tcp import LostSegments

MAX_PEERS = 256
MAX_CONNECTIONS = 20_000
FEW = 256
"""So many connections are read at every look; more of them once a second."""
EVERY = 40
"""Readings after which connections are read though nothing was sent again: the kernel walks all its tables for it."""
SNMP = "/proc/thread-self/net/snmp"


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
