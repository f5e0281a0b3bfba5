"""Lanes at work: post a round, wait for it, bring what came to its place; on threads side by side, or in lockstep.

Rules of `syncline.schedule.schedule`: a round's sends read what was there before the round; copies land in place; what
is reduced is added when the vertex's own sends of the round are done, in the order of peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from syncline.errors import SynclineError
from syncline.runtime.execute.lane import Lane, LaneRound, Message
from syncline.runtime.execute.posting import Deadline, Post

_now = time.monotonic


@dataclass(eq=False)
class MessageTimes:
    """When each message of a lane was worked on, posted and done; four times a message, room made once."""

    work_begin: list[float]
    work_end: list[float]
    posted: list[float]
    done: list[float]

    @classmethod
    def of(cls, lane: Lane) -> MessageTimes:
        """Return room for a lane's times."""
        count = sum(1 for _ in lane.messages)
        return cls(*([0.0] * count for _ in range(4)))


_Part = tuple[Message, MessageTimes, int]
"""A message, and where its times go."""


@dataclass(eq=False)
class _Step:
    """All messages of one round number, lane after lane."""

    number: int
    receives: list[_Part]
    sends: list[_Part]


@dataclass(eq=False)
class Player:
    """Runs the lanes of this process. `lockstep` lets all lanes do round k before any does round k + 1."""

    post: Post
    lanes: Sequence[Lane]
    name: str
    lockstep: bool
    logs: list[MessageTimes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.logs = [MessageTimes.of(lane) for lane in self.lanes]
        self._steps = self._by_round() if self.lockstep else []

    def run(self, deadline: Deadline, pool: ThreadPoolExecutor | None) -> None:
        """Do everything, or raise naming the rank that did not answer."""
        if self.lockstep:
            for step in self._steps:
                self._together(step, deadline)
        elif len(self.lanes) == 1 or pool is None:
            for lane, log in zip(self.lanes, self.logs, strict=True):
                self._alone(lane, log, deadline)
        else:
            self._side_by_side(deadline, pool)

    def _side_by_side(self, deadline: Deadline, pool: ThreadPoolExecutor) -> None:
        running = [pool.submit(self._alone, *pair, deadline) for pair in zip(self.lanes, self.logs, strict=True)]
        wait(running)
        errors = [error for error in (future.exception() for future in running) if error is not None]
        if errors:
            # The first to be raised may be a consequence; one that names a rank says more.
            raise next((error for error in errors if isinstance(error, SynclineError)), errors[0])

    # One lane after its own clock

    def _alone(self, lane: Lane, log: MessageTimes, deadline: Deadline) -> None:
        at = 0
        for entry in lane.rounds:
            self._round(lane, entry, log, at, deadline)
            at += len(entry.sends) + len(entry.receives)

    def _round(self, lane: Lane, entry: LaneRound, log: MessageTimes, at: int, deadline: Deadline) -> None:
        first_receive = at + len(entry.sends)
        receiving = []
        for i, message in enumerate(entry.receives, first_receive):
            log.posted[i] = _now()
            receiving.append(None if message.near else self.post.post_receive(message))
        sending = []
        for i, message in enumerate(entry.sends, at):
            log.work_begin[i] = _now()
            message.pack()
            log.work_end[i] = log.posted[i] = _now()
            if message.near:
                message.ready.release()
            sending.append(None if message.near else self.post.post_send(message))

        def where() -> str:
            return f"{self.name}, strand {lane.strand}, round {entry.number}"

        # Messages inside the process first: the lane at their other end waits for them to be taken.
        for message in entry.receives:
            if message.near is not None:
                self._take(message, message.near, deadline, where)
        for i, (message, work) in enumerate(zip(entry.sends, sending, strict=True), at):
            self._finish_send(message, work, deadline, where)
            log.done[i] = _now()
        for i, (message, work) in enumerate(zip(entry.receives, receiving, strict=True), first_receive):
            if message.near is None:
                self.post.wait(work, message, deadline, where)
            log.done[i] = log.work_begin[i] = _now()
            message.unpack()
            log.work_end[i] = _now()

    def _finish_send(self, message: Message, work: Any, deadline: Deadline, where: Callable[[], str]) -> None:
        if message.near is None:
            self.post.wait(work, message, deadline, where)
        elif not message.taken.acquire(timeout=deadline.left().total_seconds()):
            raise self.post.blame(message.process, deadline, where(), TimeoutError("timed out inside the process"))

    def _take(self, message: Message, near: Message, deadline: Deadline, where: Callable[[], str]) -> None:
        if not near.ready.acquire(timeout=deadline.left().total_seconds()):
            raise self.post.blame(message.process, deadline, where(), TimeoutError("timed out inside the process"))
        message.wire.copy_(near.wire)
        near.taken.release()

    # All lanes, round by round

    def _by_round(self) -> list[_Step]:
        """Return the messages of all lanes by round."""
        table: dict[int, _Step] = {}
        for lane, log in zip(self.lanes, self.logs, strict=True):
            at = 0
            for entry in lane.rounds:
                step = table.setdefault(entry.number, _Step(entry.number, [], []))
                step.sends.extend((message, log, at + i) for i, message in enumerate(entry.sends))
                at += len(entry.sends)
                step.receives.extend((message, log, at + i) for i, message in enumerate(entry.receives))
                at += len(entry.receives)
        return [table[number] for number in sorted(table)]

    def _together(self, step: _Step, deadline: Deadline) -> None:
        for message, log, i in step.sends:
            log.work_begin[i] = _now()
            message.pack()
            log.work_end[i] = _now()
        far_in, far_out = _far(step.receives), _far(step.sends)
        began = _now()
        works = self.post.post_batch([part[0] for part in far_in], [part[0] for part in far_out])
        for message, log, i in step.receives:
            if message.near is not None:
                message.wire.copy_(message.near.wire)
                log.posted[i], log.done[i] = began, _now()

        def where() -> str:
            return f"{self.name}, round {step.number}"

        for (message, log, i), work in zip((*far_in, *far_out), works, strict=True):
            self.post.wait(work, message, deadline, where)
            log.posted[i], log.done[i] = began, _now()
        for message, log, i in step.sends:
            if message.near is not None:
                log.posted[i], log.done[i] = began, _now()
        for message, log, i in step.receives:
            log.work_begin[i] = _now()
            message.unpack()
            log.work_end[i] = _now()


def _far(parts: list[_Part]) -> list[_Part]:
    """Return the messages that leave the process, in the order both ends of a pair post them: by tag, copies first."""
    far = [part for part in parts if part[0].near is None]
    return sorted(far, key=lambda part: (part[0].process, part[0].tag, part[0].reduce))
