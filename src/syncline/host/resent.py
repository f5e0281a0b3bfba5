"""What this host sent and had to send again, since boot: TCP segments and packets of RDMA cards.

before = read_resent()
...
(read_resent() - before).share             # 0.012: 1.2 % of what was sent in between was sent again
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SNMP = Path("/proc/self/net/snmp")
RDMA = Path("/sys/class/infiniband")
_RDMA_AGAIN = ("packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "retx_pkts", "retrans_pkts")
"""Counters of the sending card: sequence errors that the peer reports, timeouts; EFA and others count packets."""


@dataclass(frozen=True)
class Resent:
    """Counters, or the difference of two readings."""

    sent: int = 0
    again: int = 0

    @property
    def share(self) -> float:
        """Sent again over sent; 0 where nothing was sent."""
        return self.again / self.sent if self.sent > 0 else 0.0

    def __add__(self, other: Resent) -> Resent:
        return Resent(self.sent + other.sent, self.again + other.again)

    def __sub__(self, other: Resent) -> Resent:
        return Resent(max(0, self.sent - other.sent), max(0, self.again - other.again))


def tcp_resent(snmp: str) -> Resent | None:
    """Read TCP's two lines of /proc/net/snmp; None where they are not as the kernel writes them."""
    sent, again = net_counters(snmp, "Tcp", "OutSegs", "RetransSegs")
    return None if sent is None or again is None else Resent(sent, again)


def net_counters(text: str, table: str, *names: str) -> list[int | None]:
    """Return counters of one table of /proc/net/snmp or netstat: a line of names, then a line of as many numbers."""
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith(f"{table}:")][:2]
    if len(rows) < 2 or len(rows[0]) != len(rows[1]):
        return [None] * len(names)
    found = dict(zip(*rows, strict=True))
    return [int(found[name]) if found.get(name, "").isdecimal() else None for name in names]


def read_resent(snmp: Path = SNMP, rdma: Path = RDMA) -> Resent:
    """Return what this network namespace counts now; nothing where the kernel does not tell."""
    try:
        tcp = tcp_resent(snmp.read_text("ascii", "replace")) or Resent()
    except OSError:
        tcp = Resent()
    sent = sum(_number(path) for path in rdma.glob("*/ports/*/counters/port_xmit_packets"))
    again = sum(_number(path) for name in _RDMA_AGAIN for path in rdma.glob(f"*/ports/*/hw_counters/{name}"))
    return Resent(tcp.sent + sent, tcp.again + again)


def _number(path: Path) -> int:
    try:
        text = path.read_text("ascii", "replace").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0
