"""TCP segments that the host lost on the way: no interface counts them."""

from __future__ import annotations

from syncline.host.resent import net_counters
from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource, SourceTree

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
