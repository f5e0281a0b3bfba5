"""TCP retransmissions of the host: loss that no interface counter shows."""

from __future__ import annotations

from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

_WANTED = {
    ("Tcp", "OutSegs"): "tcp.out_segments",
    ("Tcp", "RetransSegs"): "tcp.retransmitted",
    ("TcpExt", "TCPTimeouts"): "tcp.timeouts",
}


class TcpSource(CounterSource):
    """Segments sent, sent again and timed out, from /proc/net/snmp and /proc/net/netstat."""

    name = "tcp"

    def __init__(self, root: SourceTree) -> None:
        self._root = root

    def read(self) -> Reading:
        """Return the host's TCP counters."""
        reading: dict[Key, float] = {}
        for file in ("snmp", "netstat"):
            lines = (self._root.text("proc/net", file) or "").splitlines()
            # Each table is a line of names and a line of numbers behind the same word.
            for names, numbers in zip(lines[::2], lines[1::2], strict=False):
                table, _, header = names.partition(":")
                for name, number in zip(header.split(), numbers.partition(":")[2].split(), strict=False):
                    metric = _WANTED.get((table, name))
                    if metric and number.lstrip("-").isdecimal():
                        reading[Key(metric, "host")] = int(number)
        return reading
