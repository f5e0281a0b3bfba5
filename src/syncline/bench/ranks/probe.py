"""Packets and processors before flows: what `syncline bench tournament` asks of the network and the hosts first."""

from __future__ import annotations

import contextlib
import string
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from syncline.describe.names import few
from syncline.errors import BenchError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from syncline.finding import Finding
    from syncline.runtime.group import Group, Meeting

LIMIT_S = 30.0
"""How long a rank may take to say what all wait for."""
PART_S = 5.0
_LETTERS = string.ascii_lowercase
MOST = 20
"""In how many steps a share of lost packets is told, a letter each."""
WORK_BYTES = 1 << 20
WORK_S = 0.06
"""How long one piece of work takes the median rank: several times what a scheduler lets a process wait."""
WORK_TIMES = 9


def packet_findings(
    store: Meeting, rank: int, names: Sequence[str], leaf: Sequence[int], *, limit_s: float = LIMIT_S
) -> list[Finding] | None:
    """Return hosts that packets do not reach, whole or at full size, or whose rank did not come, in rank 0's hands.

    The other ranks get an empty list where all is well, and None where it is not: flows would hang. Words go through
    the store in which the ranks met, in pieces that fit any packet, because a collective may hang on the very thing
    that is asked here; and every wait has an end.
    """
    from syncline.host.packets import open_door

    talk = _Talk(store, rank, len(names), limit_s)
    address, mtu_bytes = _own_address()
    with contextlib.ExitStack() as stack:
        try:
            door = stack.enter_context(open_door(address)) if address else None
        except OSError:
            door = None
        talk.say("door", f"{address}:{door.getsockname()[1]}:{mtu_bytes}" if door else "none")
        if rank != 0:
            return _asked(talk, door, mtu_bytes)
        doors = talk.hear_all("door")
        talk.say("plan", plan := _plan(doors))
        if plan == "ask" and door is not None:
            found = _judged(talk, door, [str(text) for text in doors], names, leaf)
        else:  # several ranks of a host, or a host without an address: nobody can be asked for all
            late = [name for name, text in zip(names, doors, strict=True) if text is None]
            found = [_did_not_come(late, len(names), limit_s)] if late else []
        talk.say("verdict", "stop" if found else "play")
        talk.part()
    return found


def _asked(talk: _Talk, door: socket.socket | None, mtu_bytes: int) -> list[Finding] | None:
    """Answer and ask in the seat of a rank that does not judge."""
    if talk.hear(0, "plan", 2 * talk.limit_s) == "ask" and door is not None:
        seen = _exchange(talk, door, mtu_bytes)
        with _echoing(door, talk.limit_s):
            talk.say("lost", seen)
            verdict = talk.hear(0, "verdict", 2 * talk.limit_s)
    else:
        verdict = talk.hear(0, "verdict", talk.limit_s)
    talk.say("gone", "")
    return [] if verdict == "play" else None


def _judged(
    talk: _Talk, door: socket.socket, doors: Sequence[str], names: Sequence[str], leaf: Sequence[int]
) -> list[Finding]:
    """Ask in rank 0's seat, and judge what all have seen."""
    from syncline.bench.packet_size import partners, size_findings
    from syncline.host.packets import PacketLoss

    mtu_bytes = [int(text.rpartition(":")[2]) for text in doors]
    mine = _exchange(talk, door, mtu_bytes[0])
    with _echoing(door, talk.limit_s):  # others may not be done
        talk.say("lost", mine)
        said = talk.hear_all("lost")
    late = [name for name, text in zip(names, said, strict=True) if text is None]
    if late:
        return [_did_not_come(late, len(names), talk.limit_s)]
    lost = {
        (a, b): PacketLoss(*(_LETTERS.index(letter) / MOST for letter in str(text)[2 * i : 2 * i + 2]))
        for a, text in enumerate(said) for i, b in enumerate(partners(a, len(names)))
    }  # fmt: skip
    return size_findings(lost, names, mtu_bytes, leaf)


def _exchange(talk: _Talk, door: socket.socket, mtu_bytes: int) -> str:
    """Return what was lost to and from those whom this rank asks: two letters for each, small packets and large."""
    from syncline.bench.packet_size import partners
    from syncline.host.packets import exchange

    asked = partners(talk.rank, talk.count)
    rows = {i: talk.hear(i, "door", talk.limit_s).split(":") for i in asked}
    seen = exchange(door, {str(i): (row[0], int(row[1])) for i, row in rows.items()}, mtu_bytes)
    shares = (share for i in asked for share in (seen[str(i)].small, seen[str(i)].large))
    return "".join(_LETTERS[round(MOST * share)] for share in shares)


@contextlib.contextmanager
def _echoing(door: socket.socket, limit_s: float) -> Iterator[None]:
    """Answer others meanwhile."""
    from syncline.host.packets import echo_until

    over = threading.Event()
    echo = threading.Thread(target=echo_until, args=(door, over.is_set, 4 * limit_s))
    echo.start()
    try:
        yield
    finally:
        over.set()
        echo.join()


def _plan(doors: Sequence[str | None]) -> str:
    """Say what to do next: everyone asks, or nobody."""
    addresses = {text.partition(":")[0] for text in doors if text not in (None, "none")}
    return "ask" if len(addresses) == len(doors) else "skip"


def _did_not_come(late: Sequence[str], count: int, limit_s: float) -> Finding:
    from syncline.finding import Action, Finding, Severity

    return Finding(
        "bench.reach", Severity.CRITICAL, few(late), f"no word of {len(late)} of {count} ranks within {limit_s:.0f} s",
        "every rank says where it can be reached", (), "the process there hangs or has ended, or its host is cut off",
        "See whether the process runs there and what it wrote, and whether the host reaches rank 0's.",
        action=Action.INSPECT,
    )  # fmt: skip


class _Talk:
    """Short words between ranks, through the store in which they met."""

    def __init__(self, store: Meeting, rank: int, count: int, limit_s: float) -> None:
        self._store, self.rank, self.count, self.limit_s = store, rank, count, limit_s
        self._turn = store.add(f"probe/turn/{rank}", 1)

    def say(self, what: str, text: str) -> None:
        self._store.set(self._key(self.rank, what), text)

    def hear(self, rank: int, what: str, limit_s: float) -> str:
        """Return what a rank says, or fail where it says nothing in time."""
        text = self._heard(rank, what, time.monotonic() + limit_s)
        if text is None:
            raise BenchError(f"no word of rank {rank} within {limit_s:.0f} s.",
                             hint="See whether its process runs, and whether its host can be reached.")  # fmt: skip
        return text

    def hear_all(self, what: str) -> list[str | None]:
        """Return what every rank says, None for those who say nothing in time."""
        until = time.monotonic() + self.limit_s
        return [self._heard(rank, what, until) for rank in range(self.count)]

    def part(self) -> None:
        """Keep the store until all others have read what was said last; rank 0 has it."""
        until = time.monotonic() + PART_S
        for rank in range(1, self.count):
            self._heard(rank, "gone", until)

    def _heard(self, rank: int, what: str, until: float) -> str | None:
        key = self._key(rank, what)
        try:
            self._store.wait([key], timedelta(seconds=max(until - time.monotonic(), 0.01)))
            return bytes(self._store.get(key)).decode()
        except RuntimeError:
            return None

    def _key(self, rank: int, what: str) -> str:
        return f"probe/{self._turn}/{rank}/{what}"


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


def _own_address() -> tuple[str, int]:
    """Return the address and MTU of the interface that collectives take; nothing where there is none."""
    from syncline.host.host import Host
    from syncline.host.root import Root

    usable = [interface for interface in Host(Root.live()).socket_interfaces if interface.ipv4]
    return (usable[0].ipv4[0].split("/")[0], usable[0].mtu) if usable else ("", 0)
