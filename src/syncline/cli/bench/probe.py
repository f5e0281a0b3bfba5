"""Packets before flows: what `syncline bench tournament` asks of the network first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syncline.finding import Finding
    from syncline.runtime.group import Group

LIMIT_S = 30.0


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


def _shares(seen: object) -> tuple[float, float]:
    return (float(getattr(seen, "small", 0.0)), float(getattr(seen, "large", 0.0)))


def _own_address() -> tuple[str, int]:
    """Return the address and MTU of the interface that collectives take; nothing where there is none."""
    from syncline.host.host import Host
    from syncline.host.root import Root

    usable = [interface for interface in Host(Root.live()).socket_interfaces if interface.ipv4]
    return (usable[0].ipv4[0].split("/")[0], usable[0].mtu) if usable else ("", 0)
