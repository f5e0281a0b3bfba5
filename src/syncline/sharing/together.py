"""The steps of several jobs on one flow engine, each after the one before, each not before its slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from syncline.describe.progress import Meter
from syncline.describe.units import show_time
from syncline.errors import DescriptionError
from syncline.fabric.fabric import NETWORK_TIERS
from syncline.sharing.pattern import Floats, Longs, Pattern
from syncline.sim.flow.engine import Tasks, run
from syncline.sim.flow.expand import Share
from syncline.sim.step.executed.footprint import BETWEEN, Rails, fold_links

MOST_TIMES = 100_000
"""How often a job may step, or other traffic come, while the slowest job makes its steps."""
STEPS = 10
"""Steps of the slowest job that are executed; the first two are not counted."""
SETTLE = 2


@dataclass(frozen=True)
class Slots:
    """When steps may begin: step k not before `offset_s` + k x `period_s` (0: as soon as the one before has ended)."""

    offset_s: float = 0.0
    period_s: float = 0.0

    def begins(self, number: int) -> float:
        """Return when step `number` may begin."""
        return self.offset_s + number * self.period_s


@dataclass(frozen=True, eq=False)
class TrafficBurst:
    """Other traffic: bytes on links per byte, and what is sent when."""

    name: str
    carried: Floats
    rate_Bps: float | None
    size_bytes: float
    every_s: float
    start_s: float
    share: Share


@dataclass(frozen=True, eq=False)
class SharedCourse:
    """What came of the jobs: when each step began and ended, the mean step once settled, what links carried."""

    steps: tuple[tuple[tuple[float, float], ...], ...]
    step_s: tuple[float, ...]
    busy: tuple[tuple[tuple[float, float], ...], ...]
    """By job, when it moved bytes."""
    burst_s: Mapping[str, float]
    """By other traffic, how long a burst took, or for a steady rate the part of it that arrived."""
    steady: frozenset[str]
    """Other traffic that has a rate."""
    use: tuple[tuple[str, float], ...]
    """Links with the part of their rate that was used, busiest first."""
    horizon_s: float


@dataclass(frozen=True, eq=False)
class Party:
    """Jobs that run at the same time on the same links."""

    rails: Rails
    patterns: tuple[Pattern, ...]
    shares: tuple[Share, ...]
    tenants: Mapping[str, float] = field(default_factory=dict)
    bursts: tuple[TrafficBurst, ...] = ()
    meter: Meter = field(default_factory=Meter)
    """Counts runs."""

    @cached_property
    def between(self) -> NDArray[np.bool_]:
        """Which links join switches; where there is one switch, all links of the network."""
        tier = self.rails.network.fabric.links.tier
        extra = np.ones(len(self.rails.capacity_Bps) - len(tier), bool)
        joined = np.concatenate((np.isin(tier, [int(t) for t in BETWEEN]), extra))
        outside = np.isin(tier, [int(t) for t in NETWORK_TIERS])
        return joined if joined.any() else np.concatenate((outside, extra))

    def alone(self, job: int) -> float:
        """Return the step of a job with the cluster to itself."""
        solo = Party(self.rails, (self.patterns[job],), (Share(cap_Bps=self.shares[job].cap_Bps),), meter=self.meter)
        return solo.run((Slots(),), (1.0,), steps=3).step_s[0]

    def run(
        self, slots: Sequence[Slots], alone_s: Sequence[float], *, given_away: float = 0.0, steps: int = STEPS,
        shares: Sequence[Share] | None = None, counts: Sequence[int] | None = None,
    ) -> SharedCourse:  # fmt: skip
        """Return the jobs together; `given_away` is the part of links between switches that others have.

        Every job runs `steps` steps or as many as fit beside the slowest, or as many as `counts` says.
        """
        shown = tuple(shares or self.shares)
        course = self._run(_Draft(self, slots, alone_s, steps, shown, counts=counts), given_away)
        lasting = 0.0
        # Other traffic must last as long as the jobs do, which it makes longer.
        while self.bursts and (last := max(mine[-1][1] for mine in course.steps)) > lasting * (1 + 1e-3):
            lasting = last * 1.1
            course = self._run(_Draft(self, slots, alone_s, steps, shown, lasting, counts), given_away)
        self.meter.advance()
        return course

    def _run(self, draft: _Draft, given_away: float) -> SharedCourse:
        table = np.concatenate([*(p.table for p in self.patterns), *(b.carried[None] for b in self.bursts)])
        capacity = np.where(self.between, 1 - given_away, 1.0) * self.rails.capacity_Bps
        paths, links, rates = fold_links(table, capacity)
        row = np.array(draft.row, dtype=np.int64)
        names = list(self.tenants)
        course = run(
            rates,
            Tasks.of(
                paths, size_bytes=np.where(row >= 0, draft.size, 0.0), first_path=np.maximum(row, 0),
                num_paths=(row >= 0).astype(np.int32), delay_s=draft.delay, start_s=draft.start, weight=draft.weight,
                cap_Bps=draft.cap, priority=draft.priority, wait_for=draft.waits,
                tenant=[names.index(t) if t in names else -1 for t in draft.tenant] if names else None,
            ),
            guarantee=[self.tenants[name] for name in names],
        )  # fmt: skip
        return _told(self, draft, course.begin_s, course.end_s, course.link_bytes, links, rates)


class _Draft:
    """Columns of all steps of all jobs, and of other traffic."""

    def __init__(
        self, party: Party, slots: Sequence[Slots], alone_s: Sequence[float], steps: int, shares: tuple[Share, ...],
        lasting_s: float | None = None, counts: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.delay: list[float] = []
        self.size: list[float] = []
        self.start: list[float] = []
        self.weight: list[float] = []
        self.cap: list[float] = []
        self.row: list[int] = []
        self.priority: list[int] = []
        self.waits: list[list[int]] = []
        self.tenant: list[str] = []
        self.gates: list[list[int]] = []
        self.ends: list[list[list[int]]] = []
        self.moving: list[list[int]] = []
        self.burst_tasks: dict[str, list[int]] = {}
        horizon = steps * max(max(slot.period_s, alone) for slot, alone in zip(slots, alone_s, strict=True))
        first_row = 0
        for n, (pattern, slot, alone, share) in enumerate(zip(party.patterns, slots, alone_s, shares, strict=True)):
            count = max(steps, ceil(horizon / max(slot.period_s, alone))) if len(alone_s) > 1 else steps
            count = counts[n] if counts is not None else count
            _check_count(count, f"job {n + 1} makes a step", horizon)
            self._job(pattern, slot, share, count, first_row)
            first_row += len(pattern.table)
        for burst in party.bursts:
            self._burst(burst, lasting_s or horizon, first_row)
            first_row += 1

    def _add(self, share: Share, waits: list[int], *, delay: float = 0.0, size: float = 0.0, row: int = -1,
             start: float = 0.0, cap: float | None = None) -> int:  # fmt: skip
        for column, value in ((self.delay, delay), (self.size, size), (self.start, start), (self.weight, share.weight)):
            column.append(value)
        self.cap.append(share.cap_Bps if cap is None else min(cap, share.cap_Bps))
        self.row.append(row)
        self.priority.append(share.priority)
        self.waits.append(waits)
        self.tenant.append(share.tenant)
        return len(self.row) - 1

    def _job(self, pattern: Pattern, slot: Slots, share: Share, count: int, first_row: int) -> None:
        before: list[int] = []
        gates, ends, moving, sinks = [], [], [], pattern.sinks
        for number in range(count):
            gate = self._add(share, before, start=slot.begins(number))
            gates.append(gate)
            first = len(self.row)
            for task, wait in enumerate(pattern.waits):
                row = int(pattern.row[task])
                added = self._add(
                    share, [first + w for w in wait] or [gate], delay=float(pattern.delay_s[task]),
                    size=float(pattern.size_bytes[task]), row=row + first_row if row >= 0 else -1,
                )  # fmt: skip
                if row >= 0 and pattern.size_bytes[task] > 0:
                    moving.append(added)
            before = [first + sink for sink in sinks]
            ends.append(before)
        self.gates.append(gates)
        self.ends.append(ends)
        self.moving.append(moving)

    def _burst(self, burst: TrafficBurst, horizon: float, row: int) -> None:
        mine = self.burst_tasks.setdefault(burst.name, [])
        if burst.rate_Bps is not None:
            size = burst.rate_Bps * max(horizon - burst.start_s, 0.0)
            mine.append(self._add(burst.share, [], size=size, row=row, start=burst.start_s, cap=burst.rate_Bps))
            return
        _check_count((horizon - burst.start_s) / burst.every_s, f'traffic "{burst.name}" comes', horizon)
        at = burst.start_s
        while at < horizon:
            mine.append(self._add(burst.share, mine[-1:], size=burst.size_bytes, row=row, start=at))
            at += burst.every_s


def _check_count(times: float, what: str, horizon_s: float) -> None:
    if times > MOST_TIMES:
        raise DescriptionError(
            f"{what} {times:,.0f} times in the {show_time(horizon_s)} that the slowest job is followed for; at most "
            f"{MOST_TIMES:,} are executed.",
            hint="Check the units of `compute`, `exchange` and `every`, or look at the two apart.",
        )


def _told(
    party: Party, draft: _Draft, begin_s: Floats, end_s: Floats, link_bytes: Floats, links: Longs, rates: Floats
) -> SharedCourse:
    steps = tuple(
        tuple((float(end_s[gate]), float(end_s[ends].max())) for gate, ends in zip(gates, each, strict=True))
        for gates, each in zip(draft.gates, draft.ends, strict=True)
    )
    horizon = min(mine[-1][1] for mine in steps)
    busy = tuple(_joined([(float(begin_s[t]), float(end_s[t])) for t in mine]) for mine in draft.moving)
    bursts = {}
    for burst in party.bursts:
        took = [float(end_s[t] - begin_s[t]) for t in draft.burst_tasks[burst.name]]
        whole = [float(draft.size[t]) for t in draft.burst_tasks[burst.name]]
        bursts[burst.name] = float(np.mean(took))
        if burst.rate_Bps is not None and took[0] > 0:
            bursts[burst.name] = whole[0] / burst.rate_Bps / took[0]
    steady = frozenset(burst.name for burst in party.bursts if burst.rate_Bps is not None)
    last = max(mine[-1][1] for mine in steps)
    use = np.divide(link_bytes, rates * last, out=np.zeros(len(rates)), where=rates > 0)
    order = np.argsort(-use, kind="stable")[:5]
    named = tuple((party.rails.link_name(int(links[i])), float(min(use[i], 1.0))) for i in order if use[i] > 0)
    return SharedCourse(steps, tuple(_mean_step(mine, horizon) for mine in steps), busy, bursts, steady, named, horizon)


def _mean_step(steps: tuple[tuple[float, float], ...], horizon_s: float) -> float:
    """Return the mean distance of step ends after the first ones and while every other job still runs."""
    ends = [end for _, end in steps if end <= horizon_s * (1 + 1e-9)]
    if not ends:  # starved: not one step while the others ran
        return steps[0][1]
    if len(ends) < SETTLE + 2:
        return ends[-1] / len(ends)
    return (ends[-1] - ends[SETTLE - 1]) / (len(ends) - SETTLE)


def _joined(spans: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return spans in order, those that touch made one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1] + 1e-9:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return tuple(found)
