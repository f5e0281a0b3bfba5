"""What a change would save on this very step: each is replayed alone, and says what it cannot promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from syncline.explaining.attribution import StepAttribution
from syncline.explaining.matching import call_of
from syncline.explaining.replay import ReplayGraph, collective_rows
from syncline.timeline.account import Account, StepCause
from syncline.timeline.account.account import with_removals
from syncline.timeline.columns import Floats
from syncline.timeline.recording.kernel_kind import kind_of
from syncline.timeline.recording.recording import Bools, Doing

LEAST_SAVING = 0.005
"""Share of the step below which a change is not listed."""
GRADIENTS = ("all-reduce", "reduce-scatter")


@dataclass(frozen=True)
class TraceChange:
    """One change, the step with it, and what it may not promise."""

    change: str
    step_s: float
    saves_s: float
    caveat: str

    @property
    def share(self) -> float:
        """Of the step, without what the profiler took, the part that it saves."""
        return self.saves_s / (self.step_s + self.saves_s)


@dataclass(frozen=True, eq=False)
class Replays:
    """One step with its parts that can be changed."""

    mine: StepAttribution
    step: int
    graph: ReplayGraph
    transfer_s: Floats
    """By device row: a collective's own time where other ranks' traces tell it, else NaN."""

    def _collectives(self) -> Bools:
        return collective_rows(self.mine, self.graph)

    def _own(self) -> Floats:
        """Return of each activity the time that is not waiting for another rank."""
        own = self.transfer_s[self.graph.row]
        return np.where(np.isnan(own), self.graph.length_s, np.minimum(own, self.graph.length_s))

    def without(self, cause: StepCause) -> float:
        """Return the step without a cause."""
        graph, moves = self.graph, self._collectives()
        if cause is StepCause.NETWORK:
            return graph.with_lengths(np.where(moves, graph.length_s - self._own(), graph.length_s)).step_s()
        if cause is StepCause.LATE:
            return graph.with_lengths(np.where(moves, self._own(), graph.length_s)).step_s()
        if cause is StepCause.INPUT:
            return graph.without_input().step_s()
        if cause is StepCause.HOST:
            return graph.without_host().step_s()
        return float(self.mine.windows.length_s[self.step])

    def _scaled(self, rows: Bools, factor: float) -> float:
        """Return the step with some collectives' own time multiplied."""
        length = self.graph.length_s
        return self.graph.with_lengths(np.where(rows, length - self._own() * (1 - factor), length)).step_s()

    def _reduces(self) -> Bools:
        recording = self.mine.recording
        names = [call_of(recording, int(row)).operation if moved else ""
                 for row, moved in zip(self.graph.row.tolist(), self._collectives().tolist(), strict=True)]  # fmt: skip
        return np.isin(names, GRADIENTS)

    def _products(self) -> Bools:
        names = self.mine.recording.names
        kinds = np.array([kind_of(name) == "products" for name in names] or [False])
        return np.asarray(kinds[self.mine.recording.device.name[self.graph.row]] & ~self._collectives())

    def changes(self) -> tuple[TraceChange, ...]:
        """Return what would save something, the largest saving first."""
        bare = replace(self, graph=self.graph.unrecorded())
        now = bare.graph.step_s()
        found = [TraceChange(words, step, now - step, caveat) for words, step, caveat in bare._tried()]
        kept = [change for change in found if change.saves_s >= LEAST_SAVING * now]
        return tuple(sorted(kept, key=lambda change: -change.saves_s))

    def _tried(self) -> Iterator[tuple[str, float, str]]:
        graph = self.graph
        yield (
            "no waiting for the host (CUDA graphs, torch.compile, larger batches)", self.without(StepCause.HOST),
            "kernels keep their recorded times; what a loader delays stays",
        )  # fmt: skip
        if (graph.blocks >= 0).any():
            yield (
                "no blocking calls (.item(), synchronize, pageable copies)", graph.without_blocks().step_s(),
                "the host must not need the value it waited for",
            )  # fmt: skip
        yield from self._stalls()
        copies = np.asarray(self.mine.recording.device.doing[graph.row] == Doing.COPY)
        if copies.any():
            yield (
                "copies hidden behind kernels (a stream of their own, pinned memory)",
                graph.changed(copies, 0).step_s(),
                ("needs work that does not depend on them; the link to the host is shared"),
            )
        if graph.input_s.any():
            yield (
                "input ready in time (more loader workers, prefetch, pinned memory)",
                self.without(StepCause.INPUT),
                ("loaders then compete with the job for cores and storage"),
            )
        moves = self._collectives()
        if moves.any():
            yield from self._network(moves)
        products = self._products()
        if products.any():
            yield (
                "fp8 matrix products (up to 1.6 times as fast)",
                graph.changed(products, 1 / 1.6).step_s(),
                ("large products only; casts cost, and the loss must be checked"),
            )

    def _stalls(self) -> Iterator[tuple[str, float, str]]:
        """Yield the step without each of the host's longest stalls."""
        begin = float(self.mine.windows.begin_s[self.step])
        end = begin + float(self.mine.windows.length_s[self.step])
        start = self.mine.recording.device.start_s[self.graph.row]
        for stall in self.mine.stalls[:3]:
            if stall.what.startswith("enumerate(DataLoader)"):
                continue
            moments = [(a, b) for a, b in stall.moments_s if a >= begin and b <= end]
            after = [np.flatnonzero(start >= b - 1e-9) for _, b in moments]
            kept = [(int(rows[0]), b - a) for rows, (a, b) in zip(after, moments, strict=True) if len(rows)]
            if kept:
                rows, seconds = np.array([row for row, _ in kept]), np.array([took for _, took in kept])
                where = f" at {stall.where}" if stall.where else ""
                yield (
                    f"no stall in {stall.what}{where}",
                    self.graph.without_work(rows, seconds).step_s(),
                    ("what the host did there must go, or move to another thread"),
                )

    def _network(self, moves: Bools) -> Iterator[tuple[str, float, str]]:
        now = self.graph.step_s()
        free = self.without(StepCause.NETWORK)
        yield "a network twice as fast", self._scaled(moves, 0.5), "latencies halve too, which no network does"
        yield "a network without limits", free, "no network is: the most that any can save"
        busy = float(self.graph.length_s[moves].sum())
        hidden = min(max(free, busy), now)
        yield (
            "communication hidden behind kernels (order of streams, prefetch, buckets)", hidden,
            "needs work that does not depend on it; kernels slow down beside it",
        )  # fmt: skip
        reduces = self._reduces()
        if reduces.any():
            yield (
                "gradients in half the bytes (bf16 for fp32, fp8 for bf16)",
                self._scaled(reduces, 0.5),
                ("encoding is not counted; the loss must be checked"),
            )
        if not np.isnan(self.transfer_s[self.graph.row][moves]).all():
            yield (
                "no rank late to collectives",
                self.without(StepCause.LATE),
                "the late rank's own cause must be removed",
            )
        merged = self._merged(moves)
        if merged is not None:
            yield merged

    def _merged(self, moves: Bools) -> tuple[str, float, str] | None:
        """Return the step with the fixed cost of all but a quarter of small collectives gone, where a fit tells it."""
        recording = self.mine.recording
        rows = np.flatnonzero(moves)
        size = np.array([call_of(recording, int(self.graph.row[i])).size_bytes for i in rows])
        own = self._own()[rows]
        known = size > 0
        if known.sum() < 8 or len(np.unique(size[known])) < 2:
            return None
        fixed = float(np.quantile(own[known & (size <= np.quantile(size[known], 0.25))], 0.1))
        small = known & (own < 4 * fixed)
        if small.sum() < 4:
            return None
        length = self.graph.length_s.copy()
        length[rows[small]] -= 0.75 * np.minimum(fixed, own[small])
        step = self.graph.with_lengths(length).step_s()
        return (
            f"{small.sum()} small collectives in buckets of four",
            step,
            "a bucket leaves when its last part is ready",
        )


def with_what_hid(account: Account, replays: Replays) -> Account:
    """Return an account with what removing each cause saves."""
    causes = [
        cause
        for cause in (StepCause.NETWORK, StepCause.LATE, StepCause.INPUT, StepCause.HOST)
        if account.seconds(cause) > 0
    ]
    return with_removals(account, {cause: replays.without(cause) for cause in causes})
