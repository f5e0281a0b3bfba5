"""Figures of a host that are compared across hosts: shares, not versions, so an outlier is one far from the middle."""

from __future__ import annotations

import time

from syncline.host.host import Host
from syncline.host.resent import tcp_resent

MIN_SEGMENTS = 1000
MIN_AGAIN = 20
"""Fewer segments sent again are chance, or a host that answered late, whatever their share."""
SPIN_S = 0.5


def tcp_segments(host: Host) -> tuple[int, int] | None:
    """Return how many TCP segments this network namespace sent, and sent again; None where unknown."""
    found = tcp_resent(host.root.text("proc/net/snmp") or "")
    return None if found is None else (found.sent, found.again)


def measure(host: Host, active: bool = False) -> dict[str, float]:
    """Return the share of TCP segments sent again, how often links went down and, when asked, the share of a core."""
    found = {}
    segments = tcp_segments(host)
    if segments is not None and segments[0] >= MIN_SEGMENTS:
        found["tcp retransmits"] = segments[1] / segments[0] if segments[1] >= MIN_AGAIN else 0.0
    if host.fabric_interfaces or host.fabric_ports:
        found["link downs"] = link_downs(host)
    if active and host.root.is_live:
        found |= spin()
    return found


def link_downs(host: Host) -> float:
    """Return how often the links of the fabric went down since boot; a carrier changes twice each time."""
    carriers = sum(interface.num_carrier_changes for interface in host.fabric_interfaces) // 2
    return float(carriers + sum(port.counters.get("link_downed", 0) for port in host.fabric_ports))


def spin(spin_s: float = SPIN_S) -> dict[str, float]:
    """Keep a core busy for a while; return the share of it that this process got, and the share it was held back.

    Held back is time in which it was neither running nor waiting for its turn: stopped, throttled by a quota, or a
    virtual machine that was not running. Load of others is waiting, and does not count as that.
    """
    began, used, waited = time.perf_counter(), time.process_time(), _waited_s()
    while time.perf_counter() - began < spin_s:
        sum(range(2000))
    wall, ran, queued = time.perf_counter() - began, time.process_time() - used, _waited_s()
    found = {"cpu share": min(1.0, ran / wall)}
    if waited is not None and queued is not None:
        found["cpu held back"] = min(1.0, max(0.0, 1 - (ran + queued - waited) / wall))
    return found


def _waited_s() -> float | None:
    """Return how long this thread has waited for a processor, as the scheduler counts it."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
