"""A wire between exchanges of one process, so that stages can be called one after the other without threads."""

from __future__ import annotations

from typing import Any

import torch

from syncline.runtime.message import Box


class MemoryWire:
    """The wire of one rank of several in this process; what is sent is kept until it is waited for."""

    def __init__(self, rank: int, size: int, post: dict[tuple[int, int, int], torch.Tensor]) -> None:
        self.rank, self.size = rank, size
        self.peers = [(rank + k) % size for k in range(1, size)]
        self._post = post
        self._inbox: dict[int, Box] = {}

    def open(self, tag: int, inbox: Box) -> None:
        self._inbox[tag] = inbox

    def scatter(self, tag: int, peer: int, outbox: Box) -> None:
        self._post[tag, self.rank, peer] = outbox[peer].tensor

    def gather(self, tag: int, outbox: Box) -> None:
        for peer in self.peers:
            self._post[tag, self.rank, peer] = outbox[0].tensor

    def wait(self, tag: int, peer: int) -> None:
        room = self._inbox[tag][peer].tensor
        sent = self._post.pop((tag, peer, self.rank))
        room[: len(sent)].copy_(sent)

    def finish(self, tag: int) -> None: ...


def wires(size: int) -> list[Any]:
    """Return the wires of so many ranks."""
    post: dict[tuple[int, int, int], torch.Tensor] = {}
    return [MemoryWire(rank, size, post) for rank in range(size)]
