"""TCP retransmissions of the host: loss that no interface counter shows."""

from __future__ import annotations

from syncline.host.resent import net_counters
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

_WANTED = (
    ("snmp", "Tcp", {"OutSegs": "tcp.out_segments", "RetransSegs": "tcp.retransmitted"}),
    ("netstat", "TcpExt", {"TCPTimeouts": "tcp.timeouts"}),
)


class TcpSource(CounterSource):
    """Segments sent, sent again and timed out, from /proc/net/snmp and /proc/net/netstat."""

    name = "tcp"

    def __init__(self, root: SourceTree) -> None:
        self._root = root

    def read(self) -> Reading:
        """Return the host's TCP counters."""
        reading: dict[Key, float] = {}
        for file, table, metrics in _WANTED:
            counted = net_counters(self._root.text("proc/net", file) or "", table, *metrics)
            pairs = zip(metrics.values(), counted, strict=True)
            reading.update({Key(metric, "host"): number for metric, number in pairs if number is not None})
        return reading
