"""The native transport behind the seam of `Wire`: threads, connections and lanes of its own, in C++.

Ranks meet in the store of their team: the first hands out a secret, each says where it listens, and nobody else gets
in. What went wrong on the way (a rail down, bytes changed, a stranger) is returned by `news`, and logged.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncline.errors import SynchronizationError
from syncline.program.pieces import wire_threads
from syncline.runtime.wire.message import Box
from syncline.runtime.wire.rails import Rail, rails
from syncline.runtime.wire.team import Team

try:
    from syncline._native import wire as native
except ImportError:  # a system without epoll: gloo carries everything there
    native = None  # type: ignore[assignment]

logger = logging.getLogger("syncline.wire")

FINE, TROUBLED, FAILED, DISAGREED, LOST, LATE, CLOSED = range(7)
CLOSE_S = 15.0
"""How long peers may take to have what was sent; a peer that is known to be gone is not waited for."""
LaneStatus = tuple[int, int, int, str]


@dataclass(frozen=True)
class LineReport:
    """One connection to one peer: how it does, and what it carried."""

    peer: int
    rail: int
    index: int
    up: bool
    stalled: bool
    sent_bytes: int
    received_bytes: int
    resent_frames: int
    wrong_frames: int
    num_resets: int
    rate_Bps: float

    @property
    def is_lost(self) -> bool:
        """Whether it is down though neither end closed it."""
        return not self.up and (self.num_resets > 0 or self.received_bytes == 0)


def wire_summary(lines: Sequence[LineReport]) -> str:
    """Return what is not well, rail by rail, and what had to be sent again; "" where there is nothing to say."""
    troubles = []
    for rail in sorted({line.rail for line in lines}):
        own = [line for line in lines if line.rail == rail]
        down, slow = sum(line.is_lost for line in own), sum(line.stalled for line in own)
        again, wrong = sum(line.resent_frames for line in own), sum(line.wrong_frames for line in own)
        parts = [
            f"{down} of {len(own)} connections down" if down else "",
            f"{slow} of {len(own)} without an answer" if slow else "",
            f"{again:,} pieces sent again" if again else "",
            f"{wrong:,} came with changed bytes" if wrong else "",
        ]
        if any(parts):
            troubles.append(f"rail {rail}: {', '.join(filter(None, parts))}")
    return "; ".join(troubles)


def is_there() -> bool:
    """Whether this build has the native transport."""
    return native is not None


class NativeWire:
    """Carries slots between the ranks of a team, and runs lanes."""

    on_host = checks_bytes = True

    def __init__(self, team: Team, own_rails: Sequence[Rail] | None = None, *, timeout_s: float = 300.0) -> None:
        self.rank, self.size = team.rank, team.size
        self.peers = [(self.rank + k) % self.size for k in range(1, self.size)]
        self.timeout_s = timeout_s
        self._process = os.getpid()
        self._last_lines: list[LineReport] = []
        """How connections did when this was closed."""
        own_rails = rails() if own_rails is None else own_rails
        store: Any = team.meeting
        secret = _secret(store, self.rank)
        store.set(f"rails/{self.rank}", str(len(own_rails)))
        count = min(int(store.get(f"rails/{rank}")) for rank in range(self.size))
        self.rails = list(own_rails[:count])
        self.core = native.Wire(
            self.rank,
            self.size,
            [(rail.address, rail.interface if rail.interface != "lo" else "") for rail in self.rails],
            secret,
            connections=int(os.environ.get("SYNCLINE_WIRE_CONNECTIONS", "1")),
            threads=wire_threads(),
        )
        _open_wires.add(self)
        ends = [[rail.address, port] for rail, port in zip(self.rails, self.core.ports, strict=True)]
        store.set(f"ends/{self.rank}", json.dumps(ends))
        for peer in self.peers:
            there = [(str(address), int(port)) for address, port in json.loads(store.get(f"ends/{peer}"))]
            self.core.connect(peer, there)
        if not self.core.wait_connected(timeout_s):
            missing = self._missing()
            self.close(0.0)
            raise SynchronizationError(
                f"rank {self.rank} reached no rail of rank {missing} within {timeout_s:g} s.",
                detail=f"It listens on {', '.join(rail.address for rail in self.rails)}.",
                hint="Let TCP through between these addresses, or name other interfaces in SYNCLINE_RAILS.",
            )

    def open(self, tag: int, inbox: Box) -> None:
        """Say where every peer's message under this tag goes."""
        for peer in self.peers:
            self.core.open(tag, peer, inbox[peer].tensor.numpy())

    def scatter(self, tag: int, peer: int, outbox: Box) -> None:
        """Send one peer its slot; the buffer is in use until `finish`."""
        self.core.send(tag, peer, outbox[peer].tensor.numpy())

    def gather(self, tag: int, outbox: Box) -> None:
        """Send the one slot to every peer; the buffer is in use until `finish`."""
        slot = outbox[0].tensor.numpy()
        for peer in self.peers:
            self.core.send(tag, peer, slot)

    def wait(self, tag: int, peer: int) -> None:
        """Wait for one peer's message."""
        status, _, _, text = self.core.wait(tag, peer, self.timeout_s)
        if status == DISAGREED:
            raise SynchronizationError(f"rank {peer} sent a longer message than expected.")
        if status != FINE:
            raise RuntimeError(text or f"no message for {self.timeout_s:g} s")

    def finish(self, tag: int) -> None:
        """Wait until everything sent under this tag has been received."""
        status, _, _, text = self.core.finish(tag, self.timeout_s)
        if status != FINE:
            raise RuntimeError(text or f"no acknowledgement for {self.timeout_s:g} s")

    def lines(self) -> list[LineReport]:
        """Return how each connection does."""
        self.news()
        return self._last_lines or [LineReport(*line) for line in self.core.lines()]

    def news(self) -> list[str]:
        """Return what went wrong on the way, and what is well again, since the last call; each is logged once."""
        events = []
        for _, peer, rail, what in self.core.events():
            where = f"rail {rail} ({self.rails[rail].interface or self.rails[rail].address}) to rank {peer} "
            text = (where if peer >= 0 else "") + what
            logger.warning(text)
            events.append(text)
        return events

    def break_off(self, text: str) -> None:
        """End every wait."""
        self.core.break_off(text)

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Send what is under way, say goodbye and end the threads."""
        _open_wires.discard(self)
        if os.getpid() != self._process:
            return  # a fork has no threads to end
        if not self._last_lines:
            self._last_lines = self.lines()
        self.core.close(patience_s)

    def _missing(self) -> int:
        up = {line.peer for line in self.lines() if line.up}
        return next((peer for peer in self.peers if peer not in up), self.peers[0])


def _secret(store: Any, rank: int) -> bytes:
    if rank == 0:
        store.set("secret", secrets.token_hex(32))
    return bytes.fromhex(bytes(store.get("secret")).decode())


_open_wires: weakref.WeakSet[NativeWire] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End threads before the interpreter does, when others have what they were sent."""
    for wire in list(_open_wires):
        wire.close()
