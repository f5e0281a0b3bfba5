"""Heartbeats: small messages that ranks send each other all the time, apart from training and from its connections.

A beat says how far its rank is, what it does, and whom it hears. Datagrams carry it to a few neighbours, however many
ranks there are. What one of them finds out about a lost rank each passes on at once, so that all know it after
a few hops.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

COMPUTING, WAITING, BUSY, CLOSED = "computing", "waiting", "busy", "closed"
LEFT = -1.0
"""In place of an age: this rank was heard to end as it should, which is passed on to those who did not hear it."""
MAX_BYTES = 60_000
NEAR, FAR = 2, 2
"""Neighbours on each side: the next ones, which have neighbours in common, and far ones, by which news travels."""

Address = tuple[str, int]


@dataclass(frozen=True)
class Beat:
    """What a rank says of itself.

    mark       grows with everything that is done: no change is no progress
    still_s    time since the last progress
    step_s     the usual time of a step; 0: none is over yet
    ages       seconds since each neighbour was last heard, by rank; LEFT: it has left
    at         the line its training thread is in, where that has not moved for long
    cause      why it has given up; "": it has not
    lost       the rank that it has given up for; -1: none, or itself
    """

    rank: int
    step: int = 0
    mark: int = 0
    state: str = COMPUTING
    still_s: float = 0.0
    step_s: float = 0.0
    ages: Mapping[int, float] = field(default_factory=dict)
    at: str = ""
    cause: str = ""
    lost: int = -1

    def to_bytes(self, token: str) -> bytes:
        """Return the beat as it travels; the token tells the beats of one run from those of another."""
        return json.dumps({**asdict(self), "token": token}).encode()[:MAX_BYTES]


def read_beat(data: bytes, token: str, num_ranks: int) -> Beat | None:
    """Return the beat that arrived, or None for anything else: whoever can reach the port can send to it."""
    try:
        row: dict[str, Any] = json.loads(data)
        if row.pop("token") != token or set(row) != {one.name for one in fields(Beat)}:
            return None
        texts = {key: str(row[key])[:1000] for key in ("state", "at", "cause")}
        numbers = {key: float(row[key]) for key in ("still_s", "step_s")}
        found: dict[str, Any] = {**texts, **numbers, "ages": {int(rank): float(x) for rank, x in row["ages"].items()}}
        beat = Beat(int(row["rank"]), int(row["step"]), int(row["mark"]), lost=int(row["lost"]), **found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return beat if all(0 <= rank < num_ranks for rank in (beat.rank, *beat.ages)) and beat.lost < num_ranks else None


def neighbours(rank: int, num_ranks: int) -> list[int]:
    """Return the ranks with which one exchanges beats: all of a few, else as many whatever the number of ranks.

    Each is its neighbour's neighbour. The far ones lie at steps of the third root and of its square, times two, so that
    10,000 ranks are a few dozen hops apart at most.
    """
    root = round(num_ranks ** (1 / 3))
    steps = [*range(1, NEAR + 1), *(2 * root**power + 1 for power in range(1, FAR + 1))]
    if num_ranks <= 2 * len(steps) + 1:
        steps = list(range(1, num_ranks))
    offsets = {sign * step for step in steps for sign in (1, -1)}
    return sorted({(rank + offset) % num_ranks for offset in offsets} - {rank})


class BeatCarrier(Protocol):
    """Carries beats between ranks. `refused` counts, by rank, answers that there is no such process any more."""

    refused: dict[int, int]

    def say(self, data: bytes) -> None: ...

    def hear(self, wait_s: float) -> list[bytes]: ...

    def close(self) -> None: ...


class Datagrams:
    """Beats between neighbours; a host answers for a process that is gone, and that answer is heard."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.refused: dict[int, int] = {}
        own = _own_address()
        self._family = socket.AF_INET6 if ":" in own else socket.AF_INET
        self._in = socket.socket(self._family, socket.SOCK_DGRAM)
        self._in.bind((own, 0))
        self._in.setblocking(False)
        self._arrivals = select.poll()  # not select.select, which knows no descriptor above 1023
        self._arrivals.register(self._in, select.POLLIN)
        self.address: Address = self._in.getsockname()[:2]
        self._out: dict[int, socket.socket] = {}

    def connect(self, addresses: Sequence[Address]) -> None:
        """Make a way to every neighbour."""
        for peer in neighbours(self.rank, len(addresses)):
            address = addresses[peer]
            out = self._out[peer] = socket.socket(self._family, socket.SOCK_DGRAM)
            out.setblocking(False)
            out.connect(tuple(address))

    def say(self, data: bytes) -> None:
        """Send to every neighbour; what cannot be sent now is not kept."""
        for peer, out in self._out.items():
            try:
                out.send(data)
            except ConnectionRefusedError:
                self.refused[peer] = self.refused.get(peer, 0) + 1
            except OSError:
                continue  # no route, no room: the beat is lost, and silence says so

    def hear(self, wait_s: float) -> list[bytes]:
        """Return what has come, after waiting so long for the first."""
        if not self._arrivals.poll(1000 * max(0.0, wait_s)):
            return []
        heard = []
        while True:
            try:
                heard.append(self._in.recv(MAX_BYTES))
            except OSError:
                return heard

    def close(self) -> None:
        """Give the sockets back."""
        for out in (self._in, *self._out.values()):
            out.close()


def _own_address() -> str:
    """Return the address by which this host reaches the first rank's."""
    target = os.environ.get("MASTER_ADDR", "") or "127.0.0.1"
    try:
        family, _, _, _, address = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
