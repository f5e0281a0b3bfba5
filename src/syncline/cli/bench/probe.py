"""Packets and processors before flows: what `syncline bench tournament` asks of the network and the hosts first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syncline.finding import Finding
    from syncline.runtime.group import Group

LIMIT_S = 30.0
WORK_BYTES = 1 << 20
WORK_S = 0.06
"""How long one piece of work takes the median rank: several times what a scheduler lets a process wait."""
WORK_TIMES = 9


def packet_findings(group: Group, names: Sequence[str], leaf: Sequence[int]) -> list[Finding]:
    """Return hosts that packets do not reach, whole or at full size, in every rank's hands; seconds."""
    import threading

    from syncline.bench.packet_size import partners, size_findings
    from syncline.host.packets import PacketLoss, echo_until, exchange, open_door

    address, mtu_bytes = _own_address()
    try:
        door = open_door(address) if address else None
    except OSError:
        door = None
    told = group.texts(f"{address}:{door.getsockname()[1]}:{mtu_bytes}" if door else "")
    if door is None or not all(told) or len({text.rpartition(":")[0].partition(":")[0] for text in told}) < len(told):
        if door is not None:
            door.close()
        return []  # several ranks of a host, or a host without an address: nobody can be asked for all
    rows = [text.split(":") for text in told]
    peers = {str(i): (rows[i][0], int(rows[i][1])) for i in partners(group.rank, group.size)}
    with door:
        seen = exchange(door, peers, mtu_bytes)
        over = threading.Event()
        echo = threading.Thread(target=echo_until, args=(door, over.is_set, LIMIT_S))
        echo.start()  # others may not be done
        try:
            table = group.numbers([value for i in range(group.size) for value in _shares(seen.get(str(i)))])
        finally:
            over.set()
            echo.join()
    lost = {
        (a, b): PacketLoss(float(table[a, 2 * b]), float(table[a, 2 * b + 1]))
        for a in range(group.size) for b in partners(a, group.size)
    }  # fmt: skip
    return size_findings(lost, names, [int(row[2]) for row in rows], leaf)


def work_findings(group: Group, names: Sequence[str]) -> list[Finding]:
    """Return hosts whose processors take longer for the same work than the others', in every rank's hands; a second.

    A host that is stopped now and then, throttled or busy with something else may fill its link all the same, and
    still be the one that every collective waits for.
    """
    import numpy as np

    from syncline.bench.straggler import findings, stragglers

    one_s = float(np.median(group.numbers([_work(1)])))
    count = min(max(1, round(WORK_S / max(one_s, 1e-6))), 10_000)
    times = []
    for _ in range(WORK_TIMES):
        group.barrier()
        times.append(_work(count))
    table = np.asarray(group.numbers(times))
    return findings(stragglers(table, least_s=1e-3), list(names), "a fixed piece of work on its processor")


def _work(count: int) -> float:
    """Return the seconds that so many pieces of work take."""
    import hashlib
    import time

    block = bytes(WORK_BYTES)
    began = time.perf_counter()
    for _ in range(count):
        hashlib.sha256(block).digest()
    return time.perf_counter() - began


def _shares(seen: object) -> tuple[float, float]:
    return (float(getattr(seen, "small", 0.0)), float(getattr(seen, "large", 0.0)))


def _own_address() -> tuple[str, int]:
    """Return the address and MTU of the interface that collectives take; nothing where there is none."""
    from syncline.host.host import Host
    from syncline.host.root import Root

    usable = [interface for interface in Host(Root.live()).socket_interfaces if interface.ipv4]
    return (usable[0].ipv4[0].split("/")[0], usable[0].mtu) if usable else ("", 0)
