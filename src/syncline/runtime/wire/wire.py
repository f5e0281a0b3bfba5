"""How messages travel: point to point with tags, or through a backend's own collectives.

Both move the same slots: in a *scatter* each rank sends one slot to every other, in a *gather* its one slot to all.
Point to point lets a receiver work on the first message while the next is under way, and its tags make the order in
which different exchanges are posted irrelevant; it is the choice on gloo and MPI. NCCL wants collectives.
"""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist

from syncline.runtime.alive.pace import PacedWork
from syncline.runtime.wire.message import Box
from syncline.runtime.wire.team import Team


class Wire(Protocol):
    """Carries the slots of exchanges between the ranks of one team; `peers` are the others, nearest first."""

    rank: int
    size: int
    peers: list[int]
    on_host: bool
    """Whether messages are carried from and to host memory."""
    checks_bytes: bool
    """Whether payloads carry checksums on the way, so that messages need none of their own."""

    def open(self, tag: int, inbox: Box) -> None: ...

    def scatter(self, tag: int, peer: int, outbox: Box) -> None: ...

    def gather(self, tag: int, outbox: Box) -> None: ...

    def wait(self, tag: int, peer: int) -> None: ...

    def finish(self, tag: int) -> None: ...


class PointToPoint:
    """Sends and receives by peer and tag; receives are posted before anything is sent."""

    checks_bytes = False

    def __init__(self, team: Team) -> None:
        self._team = team
        self.rank, self.size, self.peers = team.rank, team.size, team.peers
        self.on_host = team.device.type == "cpu"
        self._receives: dict[tuple[int, int], dist.Work] = {}
        self._sends: dict[int, list[dist.Work | PacedWork]] = {}

    def open(self, tag: int, inbox: Box) -> None:
        """Post the receive of every peer's message under this tag."""
        for peer in self.peers:
            self._receives[tag, peer] = self._team.receive(inbox[peer].tensor, peer, tag)

    def scatter(self, tag: int, peer: int, outbox: Box) -> None:
        """Send one peer its slot; the buffer is in use until `finish`."""
        self._sends.setdefault(tag, []).append(self._team.send(outbox[peer].tensor, peer, tag))

    def gather(self, tag: int, outbox: Box) -> None:
        """Send the one slot to every peer; the buffer is in use until `finish`."""
        self._sends[tag] = [self._team.send(outbox[0].tensor, peer, tag) for peer in self.peers]

    def wait(self, tag: int, peer: int) -> None:
        """Wait for one peer's message."""
        self._receives.pop((tag, peer)).wait()

    def finish(self, tag: int) -> None:
        """Wait until everything sent under this tag has left its buffer."""
        for work in self._sends.pop(tag, ()):
            work.wait()


class CollectiveWire:
    """The same through all-to-all and all-gather: waiting for the first peer is waiting for all.

    A backend matches collectives by order, so scatter and gather each have a team of their own: each is posted by one
    thread, in the order of the buckets.
    """

    checks_bytes = False

    def __init__(self, scatter: Team, gather: Team) -> None:
        self.rank, self.size, self.peers = scatter.rank, scatter.size, scatter.peers
        self.on_host = scatter.device.type == "cpu"
        self._scatter, self._gather = scatter, gather
        self._inbox: dict[int, Box] = {}
        self._left: dict[int, int] = {}
        self._work: dict[int, dist.Work] = {}

    def open(self, tag: int, inbox: Box) -> None:
        """Remember where the messages go."""
        self._inbox[tag] = inbox
        self._left[tag] = len(self.peers)

    def scatter(self, tag: int, peer: int, outbox: Box) -> None:
        """Note that a peer's slot is ready; all go when the last one is."""
        self._left[tag] -= 1
        if not self._left[tag]:
            self._work[tag] = self._scatter.all_to_all(self._inbox[tag].buffer, outbox.buffer)

    def gather(self, tag: int, outbox: Box) -> None:
        """Send the one slot to every peer."""
        self._work[tag] = self._gather.all_gather(self._inbox[tag].rooms, outbox.buffer)

    def wait(self, tag: int, peer: int) -> None:
        """Wait for the collective that brings this peer's message."""
        work = self._work.pop(tag, None)
        if work is not None:
            work.wait()

    def finish(self, tag: int) -> None:
        """Do nothing: a collective that was waited for has also sent."""
