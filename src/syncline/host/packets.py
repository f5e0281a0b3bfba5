"""Packets between hosts: does each come back, small ones and ones of the interface's full size?

    with open_door("10.0.0.4") as door:
        exchange(door, {"h1": ("10.0.0.5", 40123)}, mtu_bytes=9000)      # {"h1": PacketLoss(small=0.0, large=1.0)}

Everyone echoes UDP while sending some forty packets to every other, with Don't Fragment set: a few hundred kilobytes
in all. What a switch in between does not carry shows here and nowhere else.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

HEADERS_BYTES = 28
SMALL_BYTES = 64
NUM_PACKETS = 40
ANSWER_S = 0.05
LAST_ECHO_S = 1.0
_IP_MTU_DISCOVER, _PROBE = 10, 3  # linux/in.h: Don't Fragment, whatever path MTU the kernel has learned

Address = tuple[str, int]


@dataclass(frozen=True)
class PacketLoss:
    """Share of packets that did not come back, by size."""

    small: float
    large: float


def open_door(address: str) -> socket.socket:
    """Return a UDP socket on a free port of that address, which never fragments."""
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        door.bind((address, 0))
        door.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)
        door.setblocking(False)
    except OSError:
        door.close()
        raise
    return door


def exchange(door: socket.socket, peers: Mapping[str, Address], mtu_bytes: int) -> dict[str, PacketLoss]:
    """Return what was lost to and from each peer; all peers must be doing the same, or echoing."""
    names = {at: name for name, at in peers.items()}
    back: dict[str, set[int]] = {name: set() for name in peers}
    sizes = (SMALL_BYTES, max(SMALL_BYTES, mtu_bytes - HEADERS_BYTES))
    for number in range(NUM_PACKETS):
        for at in peers.values():
            packet = b"?" + number.to_bytes(2, "big")
            _send(door, packet.ljust(sizes[number % 2], b"."), at)
        # One packet for each peer at a time: a peer that is busy must not lose them in its own buffer.
        _listen(door, ANSWER_S, names, back, number)
    _listen(door, LAST_ECHO_S, names, back)
    half = NUM_PACKETS / 2
    return {
        name: PacketLoss(1 - sum(n % 2 == 0 for n in came) / half, 1 - sum(n % 2 for n in came) / half)
        for name, came in back.items()
    }


def _listen(
    door: socket.socket, for_s: float, names: dict[tuple[str, int], str], back: dict[str, set[int]], number: int = -1
) -> None:
    """Echo questions and note answers for a while, or until everyone has answered `number`."""
    until = time.monotonic() + for_s
    while (left := until - time.monotonic()) > 0:
        if number >= 0 and all(number in came for came in back.values()):
            return
        if not select.select([door], [], [], left)[0]:
            return
        try:
            packet, at = door.recvfrom(65536)
        except OSError:
            continue  # an ICMP error of an earlier packet
        if packet[:1] == b"?":
            _send(door, b"!" + packet[1:], at)
        elif packet[:1] == b"!" and at in names and len(packet) >= 3:
            back[names[at]].add(int.from_bytes(packet[1:3], "big"))


def echo_until(door: socket.socket, done: Callable[[], bool], limit_s: float) -> None:
    """Answer others until it is done, or the limit has passed."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not done():
        _listen(door, 0.05, {}, {})


def _send(door: socket.socket, packet: bytes, at: tuple[str, int]) -> None:
    try:
        door.sendto(packet, at)
    except OSError:
        return  # too long for this interface, or no route: it counts as lost
