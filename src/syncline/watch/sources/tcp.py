"""TCP segments that the host lost on the way: no interface counts them."""

from __future__ import annotations

from syncline.host.resent import net_counters
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree


class TcpSource(CounterSource):
    """Segments sent, sent again, lost and timed out, from /proc/net/snmp and /proc/net/netstat.

    Packets that overtake each other, or wait long, are sent again without being lost: the receiver then reports what it
    has twice (DSACK), a round trip later. Lost is what was sent again less that, in two readings in a row.
    """

    name = "tcp"

    def __init__(self, root: SourceTree) -> None:
        self._root = root
        self.is_quick = not root.is_host  # there connections say more
        self._lost: int | None = None
        self._before = 0

    def read(self) -> Reading:
        """Return the host's TCP counters."""
        snmp, netstat = (self._root.text("proc/net", file) or "" for file in ("snmp", "netstat"))
        sent, again = net_counters(snmp, "Tcp", "OutSegs", "RetransSegs")
        timeouts, twice, reports = net_counters(
            netstat, "TcpExt", "TCPTimeouts", "TCPDSACKRecvSegs", "TCPDSACKRecv"
        )  # an older kernel counts the reports alone
        counted = {"tcp.out_segments": sent, "tcp.retransmitted": again, "tcp.timeouts": timeouts}
        if again is not None:
            now = again - ((twice if twice is not None else reports) or 0)
            self._lost = counted["tcp.lost"] = now if self._lost is None else max(self._lost, min(self._before, now))
            self._before = now
        return {Key(metric, "host"): number for metric, number in counted.items() if number is not None}
