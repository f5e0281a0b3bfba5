"""Talk to the other hosts: does each answer, to small packets and to packets of the interface's full size?

    probe(Path("/shared/doors"), "h3", "10.0.0.4", 9000, num_hosts=8)      # {"h0": Lost(small=0.0, large=1.0), ...}

Hosts meet through files in a shared folder. Each echoes UDP while it sends some forty packets to every other, with
Don't Fragment set: a few hundred kilobytes in all. What a switch in between does not carry shows here and nowhere else.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import FileError

HEADERS_BYTES = 28
SMALL_BYTES = 64
NUM_PACKETS = 40
ANSWER_S = 0.05
MEET_S = 20.0
STALE_S = 60.0
LAST_ECHO_S = 1.0
_IP_MTU_DISCOVER, _PROBE = 10, 3  # linux/in.h: Don't Fragment, whatever path MTU the kernel has learned


@dataclass(frozen=True)
class PacketLoss:
    """Share of packets that did not come back, by size."""

    small: float
    large: float


def probe(folder: Path, host: str, address: str, mtu_bytes: int, num_hosts: int) -> dict[str, PacketLoss]:
    """Return what is lost to and from every other host that came to the folder within `MEET_S`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((address, 0))
        door.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)
        door.setblocking(False)
        doors = _meet(folder, host, door, num_hosts)
        lost = _exchange(door, {name: at for name, at in doors.items() if name != host}, mtu_bytes)
        _say(folder, f"{host}.done", {})
        _echo_until(door, lambda: len(_fresh(folder, host, "done")) >= len(doors), MEET_S)
    return lost


def _meet(folder: Path, host: str, door: socket.socket, num_hosts: int) -> dict[str, tuple[str, int]]:
    (folder / f"{host}.done").unlink(missing_ok=True)
    _say(folder, f"{host}.door", {"host": host, "at": door.getsockname()})
    _echo_until(door, lambda: len(_fresh(folder, host, "door")) >= num_hosts, MEET_S)
    found = {}
    for path in _fresh(folder, host, "door"):
        try:
            told = json.loads(path.read_text("utf-8"))
            found[str(told["host"])] = (str(told["at"][0]), int(told["at"][1]))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue  # half a file of a host that is gone
    return found


def _fresh(folder: Path, host: str, suffix: str) -> list[Path]:
    """Return the files of this run: those of an earlier one in the same folder are older than our own door."""
    try:
        since_s = (folder / f"{host}.door").stat().st_mtime - STALE_S
        return sorted(path for path in folder.glob(f"*.{suffix}") if path.stat().st_mtime >= since_s)
    except OSError:
        return []


def _exchange(door: socket.socket, peers: dict[str, tuple[str, int]], mtu_bytes: int) -> dict[str, PacketLoss]:
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


def _echo_until(door: socket.socket, done: object, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not (callable(done) and done()):
        _listen(door, 0.05, {}, {})


def _send(door: socket.socket, packet: bytes, at: tuple[str, int]) -> None:
    try:
        door.sendto(packet, at)
    except OSError:
        return  # too long for this interface, or no route: it counts as lost


def _say(folder: Path, name: str, what: dict[str, object]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(what), "utf-8")
        part.replace(folder / name)
    except OSError as error:
        raise FileError(
            f'cannot write in "{folder}": {error.strerror}.', hint="Name a folder all hosts share."
        ) from None
