"""Figures of a host that are compared across hosts: shares, not versions, so an outlier is one far from the middle."""

from __future__ import annotations

import time

from syncline.audit.host import Host

MIN_SEGMENTS = 1000
SPIN_S = 0.5


def tcp_segments(host: Host) -> tuple[int, int] | None:
    """Return how many TCP segments were sent and sent again in this network namespace, or None where it is not told."""
    rows = [line.split() for line in (host.root.text("proc/net/snmp") or "").splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        return None
    tcp = dict(zip(rows[0][1:], rows[1][1:], strict=True))
    sent, again = tcp.get("OutSegs", ""), tcp.get("RetransSegs", "")
    return (int(sent), int(again)) if sent.isdecimal() and again.isdecimal() else None


def measure(host: Host, active: bool = False) -> dict[str, float]:
    """Return the share of TCP segments sent again and, when asked, the share of a core that a process gets."""
    found = {}
    segments = tcp_segments(host)
    if segments is not None and segments[0] >= MIN_SEGMENTS:
        found["tcp retransmits"] = segments[1] / segments[0]
    if active and host.root.is_live:
        found["cpu share"] = cpu_share()
    return found


def cpu_share(spin_s: float = SPIN_S, windows: int = 3) -> float:
    """Return how much of a core a busy process gets: 1 on an idle host, less where others or a throttle take it.

    The best of a few windows, so that a moment's load of something else does not count.
    """
    return max(_share(spin_s / windows) for _ in range(windows))


def _share(spin_s: float) -> float:
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < spin_s:
        sum(range(2000))
    return min(1.0, (time.process_time() - used) / (time.perf_counter() - began))
