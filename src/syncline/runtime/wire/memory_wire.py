"""A wire between exchanges of one process, so that stages can be called one after the other without threads."""

from __future__ import annotations

import time

import torch

from syncline.runtime.wire.message import Box


class MemoryWire:
    """The wire of one rank of several in this process; what is sent is kept until it is waited for.

    `copying_s` is the processor's time spent on bringing messages over, which a network would do.
    """

    on_host = True
    checks_bytes = False

    def __init__(self, rank: int, size: int, post: dict[tuple[int, int, int], torch.Tensor]) -> None:
        self.rank, self.size = rank, size
        self.peers = [(rank + k) % size for k in range(1, size)]
        self.copying_s = 0.0
        self._post = post
        self._inbox: dict[int, Box] = {}

    def open(self, tag: int, inbox: Box) -> None:
        """Remember where the messages go."""
        self._inbox[tag] = inbox

    def scatter(self, tag: int, peer: int, outbox: Box) -> None:
        """Keep a peer's slot for it."""
        self._post[tag, self.rank, peer] = outbox[peer].tensor

    def gather(self, tag: int, outbox: Box) -> None:
        """Keep the one slot for every peer."""
        for peer in self.peers:
            self._post[tag, self.rank, peer] = outbox[0].tensor

    def wait(self, tag: int, peer: int) -> None:
        """Bring over what a peer sent, which must be there."""
        began = time.thread_time()
        room = self._inbox[tag][peer].tensor
        sent = self._post.pop((tag, peer, self.rank))
        room[: len(sent)].copy_(sent)
        self.copying_s += time.thread_time() - began

    def finish(self, tag: int) -> None:
        """Do nothing: what was sent stays where it is."""


def wires(size: int) -> list[MemoryWire]:
    """Return the wires of so many ranks."""
    post: dict[tuple[int, int, int], torch.Tensor] = {}
    return [MemoryWire(rank, size, post) for rank in range(size)]
