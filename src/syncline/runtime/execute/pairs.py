"""Flows between pairs of ranks, many pairs at once: what a tournament of links is made of.

test = PairTest(group, size_bytes=4 << 20)
test.play([(0, 3), (1, 2)])            # bytes per second from 0 to 3 and from 1 to 2, in every rank's hands

A flow begins at an instant all ranks agreed on and ends when the receiver has it all; the rate is the payload's, in the
best of the repetitions: other work on the hosts only makes a flow slower, a slow link makes all of them slow.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from syncline.errors import ExecutionError
from syncline.host.resent import Resent, read_resent
from syncline.runtime.execute.executor import DEADLINE_S, sleep_until
from syncline.runtime.execute.lane import Message
from syncline.runtime.execute.posting import Deadline, Post
from syncline.runtime.group import Group

Floats = NDArray[np.float64]
_TAG, _RECEIPT = 1 << 30, (1 << 30) + 1
PATIENCE_S = 4.0
"""A round whose first run takes a large part of this is run fewer times: a link that slow needs no best of three."""


class PairTest:
    """Measures rounds of flows; each rank sends to at most one other and receives from at most one."""

    def __init__(
        self, group: Group, size_bytes: int, *, repeats: int = 3, warm_up: int = 2, deadline_s: float = DEADLINE_S,
        lead_s: float = 0.02,
    ) -> None:  # fmt: skip
        self.group = group
        self.size_bytes = size_bytes
        self.repeats = repeats
        self.warm_up = warm_up
        self.deadline_s = deadline_s
        self.lead_s = lead_s
        self.seconds: list[Floats] = []
        """Times of every repetition of every flow so far, one array a round (flows x repetitions)."""
        self.resent: list[Resent] = []
        """What the sender of each flow so far sent and sent again while it ran, warm-up included."""
        self._post = Post(group)
        self._out = torch.zeros(size_bytes, dtype=torch.uint8, device=group.device)
        self._in = torch.zeros(size_bytes, dtype=torch.uint8, device=group.device)
        self._ack_in, self._ack_out = torch.zeros(2, 1, dtype=torch.uint8, device=group.device)
        self._counted = Resent()

    def play(self, flows: Sequence[tuple[int, int]]) -> list[float]:
        """Return the rate of each flow of one round."""
        sends = [dst for src, dst in flows if src == self.group.rank]
        receives = [src for src, dst in flows if dst == self.group.rank]
        if len(sends) > 1 or len(receives) > 1:
            raise ExecutionError(f"rank {self.group.rank} has {len(sends)} flows out and {len(receives)} in; one each.")
        out = [self._message(sends[0], self._out)] if sends else []
        coming = [self._message(receives[0], self._in)] if receives else []
        self._counted = Resent()
        took = self._runs(coming, out)
        table = self.group.numbers([*took, self._counted.sent, self._counted.again])
        self.seconds.append(np.array([table[dst, : len(took)] for _, dst in flows]))
        self.resent += [Resent(int(table[src, -2]), int(table[src, -1])) for src, _ in flows]
        return [self.size_bytes / float(row.min()) for row in self.seconds[-1]]

    def _runs(self, coming: list[Message], out: list[Message]) -> list[float]:
        """Return the times that count: of all repetitions, or of as many as patience allows, the same on every rank."""
        took = [self._once(coming, out)]
        slowest_s = float(self.group.numbers([took[0]]).max())
        num_runs = self.warm_up + self.repeats
        if slowest_s > PATIENCE_S / num_runs:
            num_runs = max(1, int(PATIENCE_S / slowest_s))
        took += [self._once(coming, out) for _ in range(num_runs - 1)]
        return took[min(self.warm_up, num_runs - 1) :]

    def _message(self, peer: int, wire: torch.Tensor, tag: int = _TAG) -> Message:
        return Message(peer, peer, tag, reduce=False, rows=(), wire=wire, packed=False)

    def _once(self, coming: list[Message], out: list[Message]) -> float:
        """Run the flows once; returns the seconds until this rank had received, 0 where nothing came."""
        self._post.next_run()
        together = not self.group.tagged
        works = [] if together else [self._post.post_receive(message) for message in coming]
        start_s = self.group.agree_start_s(self.lead_s)
        sleep_until(start_s)
        before = read_resent()
        deadline = Deadline(self.deadline_s)
        works += self._post.post_batch(coming, out) if together else [self._post.post_send(message) for message in out]
        took = 0.0
        for message, work in zip((*coming, *out), works, strict=True):
            self._post.wait(work, message, deadline, lambda: "pair test")
            took = took or time.monotonic() - start_s
        if self.group.tagged:
            self._receipt(coming, out, deadline)
        self._counted += read_resent() - before
        return took if coming else 0.0

    def _receipt(self, coming: list[Message], out: list[Message], deadline: Deadline) -> None:
        """Wait for the receiver's acknowledgement: bytes in a socket buffer have not been delivered yet."""
        acks_in = [(self._message(m.peer, self._ack_in, _RECEIPT), self._post.post_receive) for m in out]
        acks_out = [(self._message(m.peer, self._ack_out, _RECEIPT), self._post.post_send) for m in coming]
        for message, work in [(message, post(message)) for message, post in (*acks_in, *acks_out)]:
            self._post.wait(work, message, deadline, lambda: "pair test")
