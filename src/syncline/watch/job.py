"""The job as its spans tell it: collectives and their tails, steps and their parts, late ranks, who sends whom.

Durations are compared, never clocks of two hosts: in a collective the rank that comes last waits least, so a rank's
lateness is the longest duration among the ranks less its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from statistics import median

import numpy as np
import numpy.typing as npt

from syncline.describe.plain import JsonObject
from syncline.timeline import COMMUNICATION, SpanKind
from syncline.timeline.account import Account, StepCause, reported_account
from syncline.timeline.collective import CollectiveName, canonical, size_bucket
from syncline.watch.foreign import Count, Moment, Rank, Seconds, StepNumber, Text
from syncline.watch.hang import Pending
from syncline.watch.lateness import Lateness
from syncline.watch.prediction import Prediction
from syncline.watch.spans.event import Event, Hang, JobPhase, PendingEvent, PhaseEvent, SpanEvent, StuckEvent

WINDOW_S = 10.0
RECENT = 5
"""Occurrences that say what is usual now."""
LATE_S, LATE_SOON_S, LATE_NOW_S = 2.5, 1.25, 0.75
"""Windows of lateness: a small one must last, unless ranks are usually in time; a large one need not."""
GONE_S = 60.0
"""A rank that reported nothing for so long is not waited for."""
MAX_KINDS = 64
MAX_OPEN, MAX_WAITED = 2048, 64
MAX_STEPS, SHOWN_STEPS = 120, 60
MAX_PAIR_RANKS = 128


@dataclass(frozen=True)
class CollectiveStat:
    """One kind of collective over the last ten seconds.

    `transfer_s` is without waiting for the last rank to come; `num_slow` counts runs beyond three times the median.
    """

    key: Text
    name: Text
    size_bytes: Count
    num: Count
    p50_s: Seconds
    p99_s: Seconds
    transfer_s: Seconds
    recent_s: Seconds
    predicted_s: Seconds | None = None
    num_slow: Count = 0
    is_told: bool = True
    """Whether the prediction is of this size; else it follows from another one, in proportion."""

    def to_json(self) -> JsonObject:
        return dict(vars(self))


@dataclass(frozen=True)
class StepStat:
    """One step, medians over its ranks: its time, computation, communication that nothing hides, and the rest.

    `late_s` of the exposed communication is waiting for the last rank to come.
    """

    step: StepNumber
    end_s: Moment
    step_s: Seconds
    compute_s: Seconds
    exposed_s: Seconds
    num_ranks: Count
    late_s: Seconds = 0.0

    @cached_property
    def account(self) -> Account:
        """Where the step went, by what ranks report of it."""
        return reported_account("live", f"step {self.step}", self.step_s, self.compute_s, self.exposed_s, self.late_s)

    @property
    def other_s(self) -> float:
        return self.account.seconds(StepCause.IDLE)

    @property
    def network_share(self) -> float:
        return self.account.share(StepCause.NETWORK)

    @cached_property
    def plain(self) -> JsonObject:
        """The step as the page reads it."""
        own = {column.name: getattr(self, column.name) for column in fields(self)}
        return {**own, "other_s": self.other_s, "network_share": self.network_share, "causes_s": self.account.causes_s}


@dataclass(frozen=True)
class RankStat:
    """One rank: how late it was in four of five steps, or more, lately and just now; its median computing a step."""

    rank: Rank
    lateness_s: Moment
    compute_s: Seconds
    late_now_s: Moment = 0.0
    late_soon_s: Moment = 0.0
    late_twice_s: Moment = 0.0
    """The less of its lateness in the last two steps."""
    least_compute_s: Seconds = 0.0
    """The least it computed in one of the last steps: a rank that only waits for a core now and then has a low one."""

    @property
    def place(self) -> str:
        return f"rank {self.rank}"


@dataclass(frozen=True, eq=False)
class JobState:
    """All of it, at one moment."""

    collectives: tuple[CollectiveStat, ...] = ()
    steps: tuple[StepStat, ...] = ()
    ranks: tuple[RankStat, ...] = ()
    pairs_Bps: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    ranks_per_cell: int = 1
    last_span_s: float = float("-inf")
    reported_s: float = float("-inf")
    """Until when all ranks have reported."""
    phases: Mapping[int, PhaseEvent] = field(default_factory=dict)
    """The last phase of each rank that reported one, and no step since."""
    hangs: tuple[Hang, ...] = ()
    is_stuck: bool = False
    """Whether NCCL itself (RAS, its log) says that ranks hold up the others."""

    @property
    def phase(self) -> str:
        """What the job as a whole says it is doing; empty while it trains, or where it says nothing."""
        phases = {event.phase for event in self.phases.values()}
        order = (JobPhase.FAILED, JobPhase.CHECKPOINT, JobPhase.EVALUATION, JobPhase.START, JobPhase.END)
        return next((phase.value for phase in order if phase in phases), "")

    def to_json(self) -> JsonObject:
        """Return the state as the page reads it."""
        return {
            "collectives": [c.to_json() for c in self.collectives],
            "steps": [s.plain for s in self.steps[-SHOWN_STEPS:]],
            "ranks": [vars(r) for r in self.ranks],
            "pairs_Bps": [[float(f"{v:.4g}") for v in row] for row in self.pairs_Bps.tolist()],
            "ranks_per_cell": self.ranks_per_cell,
            "phase": self.phase,
            "hangs": [hang.text for hang in self.hangs],
        }


class _Kind:
    """The recent occurrences of one collective of one size."""

    def __init__(self, name: CollectiveName, prediction: Prediction) -> None:
        self.name, self.size_bytes = name, size_bucket(name.size_bytes)
        self.predicted_s, self.is_told = prediction.collective_s(name)
        self.done: deque[tuple[float, list[float]]] = deque(maxlen=1000)


class JobView:
    """Takes spans as they come; says what the job looks like now."""

    def __init__(self, prediction: Prediction | None = None) -> None:
        self._prediction = prediction or Prediction()
        self._begin()

    def _begin(self) -> None:
        """Know nothing: at the start, and when a new job follows one that has ended."""
        self._kinds: dict[str, _Kind] = {}
        self._open: dict[tuple[str, int, int], dict[int, SpanEvent]] = {}
        self._nth: dict[tuple[str, int, int], int] = {}
        self._parts: dict[tuple[int, int], list[SpanEvent]] = {}
        self._step_of: dict[int, int] = {}
        self._step_rows: dict[int, list[tuple[int, float, float, float, float]]] = {}
        self._steps: deque[StepStat] = deque(maxlen=MAX_STEPS)
        self._lateness = Lateness()
        self._waited: dict[int, dict[int, float]] = {}
        """How long each rank waited in the collectives of a step for the last one to come."""
        self._compute: dict[int, deque[float]] = {}
        self._sent: deque[tuple[float, int, int, int]] = deque(maxlen=50_000)
        self._reported_s: dict[int, float] = {}
        self._first_s = float("inf")
        self._phases: dict[int, PhaseEvent] = {}
        self._left_s: dict[int, float] = {}
        """When each rank last left training, to save or to evaluate."""
        self._resumed_s = float("-inf")
        """When a rank last reported that it trains again: its silence begins there, not at the step before."""
        self._pending = Pending()
        self._stuck: dict[str, tuple[Hang, ...]] = {}

    def add(self, given: Iterable[Event]) -> None:
        """Take spans, phases and what flight recorders say is pending, in any order of ranks."""
        every = list(given)
        self._take_phases([event for event in every if isinstance(event, PhaseEvent)])
        self._pending.take(event for event in every if isinstance(event, PendingEvent))
        self._stuck.update({event.source: event.hangs for event in every if isinstance(event, StuckEvent)})
        events = [event for event in every if isinstance(event, SpanEvent)]
        # What a job did before it ended may be read after its end, in one look.
        if self._has_ended() and any(e.start_s > max(p.at_s for p in self._phases.values()) for e in events):
            self._begin()
        for event in events:
            own = self._phases.get(event.rank)
            if own is not None and event.end_s > own.at_s and own.phase is not JobPhase.FAILED and event.step >= 0:
                del self._phases[event.rank]  # it trains again
                self._pending.clear()
        for event in events:  # first of all: an occurrence is whole when all have reported
            self._reported_s[event.rank] = max(event.end_s, self._reported_s.get(event.rank, event.end_s))
            self._first_s = min(self._first_s, event.start_s)
        for event in events:
            if event.kind is SpanKind.COLLECTIVE:
                self._add_collective(event)
            if event.peer >= 0 and event.kind is SpanKind.SEND:
                self._sent.append((event.end_s, event.rank, event.peer, event.size_bytes))
            if event.step >= 0:
                self._add_to_step(event)

    def _take_phases(self, events: list[PhaseEvent]) -> None:
        for event in sorted(events, key=lambda event: event.at_s):
            if event.phase is JobPhase.START and self._has_ended():
                self._begin()
            if event.phase is JobPhase.TRAIN:
                self._resumed_s = max(self._resumed_s, event.at_s)
                self._phases.pop(event.rank, None)
            else:
                self._phases[event.rank] = event
                self._left_s[event.rank] = event.at_s

    def _has_ended(self) -> bool:
        """Return whether every rank that ever reported has reported its end."""
        known = self._reported_s.keys() | self._phases.keys()
        return bool(known) and all(
            rank in self._phases and self._phases[rank].phase in (JobPhase.END, JobPhase.FAILED) for rank in known
        )

    def state(self, now_s: float) -> JobState:
        """Return what the spans of the last seconds say."""
        found = [self._collective(key, kind, now_s) for key, kind in self._kinds.items()]
        pairs, cell = self._pairs(now_s)
        last_s = max(self._reported_s.values(), default=float("-inf"))
        return JobState(
            collectives=tuple(sorted((c for c in found if c), key=lambda c: -c.num * c.p50_s)),
            steps=tuple(self._steps),
            ranks=self._rank_stats(),
            pairs_Bps=pairs,
            ranks_per_cell=cell,
            last_span_s=max(last_s, self._resumed_s),
            reported_s=min((at_s for at_s in self._reported_s.values() if last_s - at_s < GONE_S), default=last_s),
            phases=dict(self._phases),
            hangs=(*self._pending.hangs(self._reported_s), *(hang for hangs in self._stuck.values() for hang in hangs)),
            is_stuck=any(self._stuck.values()),
        )

    # Collectives

    def _add_collective(self, event: SpanEvent) -> None:
        name, key = _name(event.name, event.size_bytes, event.group, event.codec)
        if key not in self._kinds:
            if len(self._kinds) >= MAX_KINDS:
                return
            self._kinds[key] = _Kind(name, self._prediction)
        count = (key, event.step, event.rank)
        nth = self._nth[count] = self._nth.get(count, -1) + 1
        together = self._open.setdefault((key, event.step, nth), {})
        together[event.rank] = event
        if len(together) >= len(self._reported_s):
            self._settle((key, event.step, nth))
        while len(self._open) > MAX_OPEN:
            self._settle(next(iter(self._open)))
        while len(self._nth) > 8 * MAX_OPEN:
            del self._nth[next(iter(self._nth))]

    def _settle(self, place: tuple[str, int, int]) -> None:
        """Count an occurrence that all ranks have reported, or that has waited too long for the others."""
        together = self._open.pop(place)
        took = {rank: event.duration_s for rank, event in together.items()}
        longest = max(took.values())
        end_s = max(e.end_s for e in together.values())
        self._kinds[place[0]].done.append((end_s, list(took.values())))
        if len(took) > 1:
            self._lateness.add(place[1], end_s, {rank: longest - duration for rank, duration in took.items()})
            waited = self._waited.setdefault(place[1], {})
            for rank, duration in took.items():
                waited[rank] = waited.get(rank, 0.0) + duration - min(took.values())
            while len(self._waited) > MAX_WAITED:
                del self._waited[next(iter(self._waited))]

    def _collective(self, key: str, kind: _Kind, now_s: float) -> CollectiveStat | None:
        # Occurrences that some rank has not reported yet still count, so that a dead rank does not hide the rest.
        late = [place for place in self._open if place[0] == key and self._is_stale(place, now_s)]
        for place in late:
            self._settle(place)
        recent = [took for end_s, took in kind.done if now_s - end_s <= WINDOW_S]
        if not recent:
            return None
        every = sorted(duration for took in recent for duration in took)
        transfers = [min(took) for took in recent]
        p50_s = median(every)
        return CollectiveStat(
            key,
            kind.name.operation,
            kind.size_bytes,
            len(recent),
            p50_s,
            every[round(0.99 * (len(every) - 1))],
            median(transfers),
            median(transfers[-RECENT:]),
            kind.predicted_s,
            sum(max(took) > 3 * p50_s for took in recent),
            kind.is_told,
        )

    def _is_stale(self, place: tuple[str, int, int], now_s: float) -> bool:
        return max(event.end_s for event in self._open[place].values()) < now_s - 1.0

    # Steps

    def _add_to_step(self, event: SpanEvent) -> None:
        rank = event.rank
        current = self._step_of.get(rank)
        if current is not None and event.step < current:
            return  # a straggling report of a step already closed
        if current is not None and event.step > current:
            self._close_step(rank, current, event)
        self._step_of[rank] = event.step
        self._parts.setdefault((rank, event.step), []).append(event)

    def _close_step(self, rank: int, step: int, following: SpanEvent) -> None:
        events = self._parts.pop((rank, step), [])
        if not events:
            return
        start_s = min(e.start_s for e in events)
        # From start to start, so that what no span covers (data loading, the optimiser) is part of the step.
        last_s = max(e.end_s for e in events)
        end_s = following.start_s if following.step == step + 1 else last_s
        if start_s < self._left_s.get(rank, end_s) < end_s:  # what it did then is no part of the step
            end_s = max(last_s, self._left_s[rank])
        computes = [(e.start_s, e.end_s) for e in events if e.kind is SpanKind.COMPUTE]
        computed = _length_s(computes)
        exposed = _length_s([*computes, *((e.start_s, e.end_s) for e in events if e.kind in COMMUNICATION)]) - computed
        self._compute.setdefault(rank, deque(maxlen=RECENT)).append(computed)
        rows = self._step_rows.setdefault(step, [])
        rows.append((rank, end_s, max(end_s - start_s, 1e-9), computed, exposed))
        if len(rows) >= len(self._reported_s):
            self._finish_step(step)
        while len(self._step_rows) > 8:
            self._finish_step(min(self._step_rows))

    def _finish_step(self, step: int) -> None:
        ranks, ends_s, steps_s, computed_s, exposed_s = zip(*self._step_rows.pop(step), strict=True)
        waited = self._waited.pop(step, {})
        late_s = median(waited.get(rank, 0.0) for rank in ranks)
        times_s = median(steps_s), median(computed_s), median(exposed_s)
        self._steps.append(StepStat(step, max(ends_s), *times_s, len(ranks), late_s))

    # Ranks and pairs

    def _rank_stats(self) -> tuple[RankStat, ...]:
        late = self._lateness
        late_s, soon_s, now_s = (late.over(over_s) for over_s in (LATE_S, LATE_SOON_S, LATE_NOW_S))
        twice_s = late.over(0.0, 2)
        return tuple(
            RankStat(
                rank, late_s.get(rank, 0.0), _median(self._compute.get(rank)), now_s.get(rank, 0.0),
                soon_s.get(rank, 0.0), twice_s.get(rank, 0.0), min(self._compute.get(rank) or (0.0,)),
            )
            for rank in sorted(self._reported_s)[:4096]
        )  # fmt: skip

    def _pairs(self, now_s: float) -> tuple[npt.NDArray[np.float64], int]:
        while self._sent and now_s - self._sent[0][0] > WINDOW_S:
            self._sent.popleft()
        table = np.array(self._sent).reshape(-1, 4)
        table = table[now_s - table[:, 0] <= WINDOW_S]
        if not len(table):
            return np.zeros((0, 0)), 1
        ranks = table[:, 1:3].astype(np.int64)
        cell = -(-int(ranks.max() + 1) // MAX_PAIR_RANKS)
        size = -(-int(ranks.max() + 1) // cell)
        matrix = np.zeros((size, size))
        np.add.at(matrix, tuple((ranks // cell).T), table[:, 3])
        begun_s = max(self._first_s, now_s - WINDOW_S)
        if len(self._sent) == self._sent.maxlen:  # older ones were let go
            begun_s = max(begun_s, float(table[:, 0].min()))
        return matrix / max(now_s - begun_s, 1e-9), cell


@lru_cache(4096)
def _name(text: str, size_bytes: int, group: str, codec: str) -> tuple[CollectiveName, str]:
    """Return what a collective is called, and its kind; a job runs the same few again and again."""
    name = canonical(text, size_bytes, group, codec)
    return name, name.key()


def union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans merged, in order and apart."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length_s(spans: list[tuple[float, float]]) -> float:
    """Return how long any of the spans lasted."""
    return sum(end - start for start, end in union(spans))


def _median(values: deque[float] | None) -> float:
    return median(values) if values else 0.0
