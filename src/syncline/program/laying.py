"""The order of things in a training step, laid down as tasks: whoever prices a step keeps the ledger.

Pieces go through the front thread in order; the back thread reduces piece k and then collects piece k - depth, so that
the wire is busy meanwhile. Pieces on a device are collected by a thread of their own. Plain DDP hands each bucket to
the backend's ring, two at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from syncline.program.stages import ON_THE_WIRE, BucketStage, PieceProgram, StagePhase
from syncline.timeline import SpanKind

RING_LANES = 2
"""Collectives that gloo runs at once."""
ADDED = BucketStage("ring", SpanKind.REDUCE, StagePhase.REDUCE)
COMPUTED = BucketStage("forward and backward", SpanKind.COMPUTE, StagePhase.SEND)
OPTIMIZED = BucketStage("optimizer", SpanKind.COMPUTE, StagePhase.COLLECT)


class Ledger(Protocol):
    """Who writes tasks down; each is a number."""

    @property
    def ranks(self) -> Sequence[int]: ...

    def work(
        self, rank: int, seconds: float, after: list[int], stage: BucketStage | None, piece: int, peer: int
    ) -> int: ...

    def send(self, rank: int, peer: int, size_bytes: float, after: list[int], post_s: float | None) -> int: ...

    def arrived(self, rank: int, name: str, piece: int, posted: int, size_bytes: float, tasks: list[int]) -> None: ...


class PricedPiece:
    """A piece with what its stages cost a processor, and what a message does; None: what one of the ring costs."""

    def __init__(
        self,
        program: PieceProgram,
        bucket: int,
        seconds: Callable[[int], float],
        message_s: float | None,
    ) -> None:
        self.program, self.bucket, self.seconds, self.message_s = program, bucket, seconds, message_s
        self.sent: dict[int, dict[int, dict[int, tuple[int, float]]]] = {}
        self.posted: dict[tuple[int, int], int] = {}
        self.last: dict[int, list[int]] = {}


class LedgerWriter:
    """Lays pieces down on a ledger as they become ready; `finish` returns what ends the exchange on each rank."""

    def __init__(self, ledger: Ledger, depth: int, *, on_device: bool = False) -> None:
        self._ledger, self._depth = ledger, 0 if on_device else depth
        threads: list[dict[int, list[int]]] = [{rank: [] for rank in ledger.ranks} for _ in StagePhase]
        self._threads = dict(zip((StagePhase.SEND, StagePhase.REDUCE, StagePhase.COLLECT), threads, strict=True))
        if not on_device:
            self._threads[StagePhase.COLLECT] = self._threads[StagePhase.REDUCE]
        self._waiting: list[tuple[int, PricedPiece]] = []
        self._num_pieces = 0

    def add(self, piece: PricedPiece, ready: Callable[[int], int]) -> None:
        """Send and reduce a piece whose gradients are there when `ready` says, and collect those that are due."""
        number = self._num_pieces
        self._num_pieces += 1
        self._run(number, piece, StagePhase.SEND, ready)
        self._run(number, piece, StagePhase.REDUCE)
        if piece.program.is_ordered:
            self._run(number, piece, StagePhase.COLLECT)
            return
        self._waiting.append((number, piece))
        if len(self._waiting) > self._depth:
            self._run(*self._waiting.pop(0), StagePhase.COLLECT)

    def finish(self) -> dict[int, list[int]]:
        """Collect what is left."""
        while self._waiting:
            self._run(*self._waiting.pop(0), StagePhase.COLLECT)
        back, last = self._threads[StagePhase.REDUCE], self._threads[StagePhase.COLLECT]
        return {rank: [*dict.fromkeys([*back[rank], *last[rank]])] for rank in self._ledger.ranks}

    def _run(
        self, number: int, piece: PricedPiece, phase: StagePhase, ready: Callable[[int], int] | None = None
    ) -> None:
        for index, stage in enumerate(piece.program.stages):
            if stage.phase is phase:
                for rank in self._ledger.ranks:
                    self._stage(number, piece, index, rank, [] if ready is None else [ready(rank)])
                if stage.posts:
                    self._deliver(piece, index)

    def _stage(self, number: int, piece: PricedPiece, index: int, rank: int, ready: list[int]) -> None:
        stage, ledger = piece.program.stages[index], self._ledger
        thread = self._threads[stage.phase]
        after = [*dict.fromkeys([*thread[rank], *piece.last.get(rank, []), *ready])]
        came = piece.sent[stage.awaits][rank] if stage.awaits >= 0 else {}
        seconds = piece.seconds(index)
        if stage.awaits >= 0:
            name = ON_THE_WIRE[piece.program.stages[stage.awaits].posts]
            size = sum(size for _, size in came.values())
            posted = piece.posted[stage.awaits, rank]
            ledger.arrived(rank, name, number, posted, size, [task for task, _ in came.values()])
        if stage.by_peer:
            peers = list(came) or [peer for peer, _ in piece.program.messages(index, rank)]
            for peer in peers:
                waits = [came[peer][0]] if peer in came else []
                after = [ledger.work(rank, seconds / len(peers), [*after, *waits], stage, number, peer)]
        else:
            waits = [task for task, _ in came.values()]
            after = [ledger.work(rank, seconds, [*after, *waits], stage, number, -1)]
        thread[rank] = piece.last[rank] = after
        if stage.posts:
            piece.posted[index, rank] = after[0]

    def _deliver(self, piece: PricedPiece, index: int) -> None:
        """Send every rank's messages, and note for each rank what comes from whom."""
        ledger, came = self._ledger, piece.sent.setdefault(index, {rank: {} for rank in self._ledger.ranks})
        for rank in ledger.ranks:
            for peer, size in piece.program.messages(index, rank):
                task = ledger.send(rank, peer, size, [piece.posted[index, rank]], piece.message_s)
                came[peer][rank] = (task, size)


class RingLayer:
    """Lays buckets of plain DDP down: each by a ring of all ranks."""

    def __init__(self, ledger: Ledger, num_ranks: int, add_s: float) -> None:
        self._ledger, self._num_ranks, self._add_s = ledger, num_ranks, add_s
        self._lanes: list[dict[int, list[int]]] = [{rank: [] for rank in ledger.ranks} for _ in range(RING_LANES)]
        self._num_buckets = 0

    def add(self, elements: int, ready: Callable[[int], int]) -> None:
        """Average a bucket of float32 whose gradients are there when `ready` says."""
        ledger, num = self._ledger, self._num_ranks
        lane = self._lanes[self._num_buckets % RING_LANES]
        number, self._num_buckets = self._num_buckets, self._num_buckets + 1
        now = {rank: ledger.work(rank, 0.0, [*lane[rank], ready(rank)], None, number, -1) for rank in ledger.ranks}
        first, chunk = now, elements / num
        for step in range(2 * (num - 1)):
            flows = {
                rank: ledger.send(rank, (rank + 1) % num, 4 * chunk, [now[rank], now[(rank + 1) % num]], None)
                for rank in ledger.ranks
            }
            seconds = self._add_s * chunk if step < num - 1 else 0.0
            now = {
                rank: ledger.work(rank, seconds, [flows[(rank - 1) % num], flows[rank]], ADDED, number, -1)
                for rank in ledger.ranks
            }
        for rank in ledger.ranks:
            ledger.arrived(rank, ADDED.name, number, first[rank], 8 * chunk * (num - 1), [now[rank]])
            lane[rank] = [now[rank]]

    def finish(self) -> dict[int, list[int]]:
        """Return what ends every lane on each rank."""
        return {rank: [task for lane in self._lanes for task in lane[rank]] for rank in self._ledger.ranks}
