"""When a run ends and what it costs, with intervals, and how likely it keeps its deadline and its budget.

    seen = forecast(goal, work_s, recovery, usd_per_gpu_hour, inputs)
    seen.days, seen.days_90, seen.chance_deadline

Days = tokens / (tokens a second) / goodput; dollars = days x 24 x GPUs, spares with them, x dollars a GPU-hour. Their
distribution is that of 2,000 runs lived through failure by failure (`cost/histories`), each with its own draw of
everything uncertain; always the same draws, so the same question gives the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.histories import DRAWS, Histories, histories
from syncline.planning.cost.owning import Owning
from syncline.planning.cost.recovery import LEAST_GOODPUT, Recovery
from syncline.planning.decide.uncertain import Uncertain, owned_prices
from syncline.sim.uncertainty import Interval
from syncline.workload.goal import Goal

Ends = tuple[float, float]
FACTORS = ("step", "failures", "restart", "repair", "price")
MOST_SPARES = 6


@dataclass(frozen=True)
class Swing:
    """How far one input alone moves the answer, over its range."""

    name: str
    words: str
    low: float
    value: float
    high: float
    unit: str
    source: str
    days: Ends
    """At the low and at the high end of the input."""
    usd: Ends


@dataclass(frozen=True)
class SpareValue:
    """The same run with so many spare hosts."""

    spares: int
    goodput: float
    days: float
    end: str | None
    usd: float
    """Of the whole run, the spare hosts paid for."""


@dataclass(frozen=True)
class ForecastReport:
    """The end and the cost of one run: its fields are the JSON."""

    tokens: float | None
    gpus: int
    days: float
    days_50: Ends
    days_90: Ends
    least_days: float
    """What the run takes at the least: every step at what the hardware allows, and nothing ever fails."""
    work_days: float
    goodput: float
    interruptions: float
    start: str | None
    end: str | None
    end_90: tuple[str, str] | None
    usd: float
    usd_50: Ends
    usd_90: Ends
    usd_per_gpu_hour: float
    deadline_days: float | None
    budget_usd: float | None
    chance_deadline: float | None
    chance_budget: float | None
    chance_both: float
    moves_with: tuple[Swing, ...]
    spares: tuple[SpareValue, ...]
    """Hosts that stand by, from none to enough: what each is worth."""
    days_percentiles: tuple[float, ...]
    """5 %, 10 % ... 95 % of runs end within so many days."""
    usd_percentiles: tuple[float, ...]
    waiting_days: float
    """Of the days: those that a run waits for a host, on average."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The end and the cost of one run."""

    goal: Goal
    recovery: Recovery
    usd_per_gpu_hour: float
    rent_usd_per_gpu_hour: float  # of hosts that stand in, where they are rented
    work_days: float  # if nothing ever failed
    least_days: float  # at the hardware's peak, if nothing ever failed
    drawn_days: Values
    drawn_usd: Values
    waiting_days: float
    swings: tuple[Swing, ...]

    @property
    def num_gpus(self) -> int:
        return self.recovery.parts.num_gpus

    @property
    def goodput(self) -> float:
        return self.recovery.goodput

    @property
    def days(self) -> float:
        return self.work_days / self.goodput

    @property
    def usd(self) -> float:
        return float(_usd(self.recovery, self.days, self.usd_per_gpu_hour, self.rent_usd_per_gpu_hour))

    @property
    def interruptions(self) -> float:
        return self.recovery.interruptions_in(self.days)

    @cached_property
    def days_50(self) -> Ends:
        return _interval(self.drawn_days, 50)

    @cached_property
    def days_90(self) -> Ends:
        return _interval(self.drawn_days, 90)

    @cached_property
    def usd_50(self) -> Ends:
        return _interval(self.drawn_usd, 50)

    @cached_property
    def usd_90(self) -> Ends:
        return _interval(self.drawn_usd, 90)

    @cached_property
    def chance_deadline(self) -> float | None:
        """How likely the deadline is kept; None: there is none."""
        return float(self._in_time.mean()) if self.goal.days_allowed is not None else None

    @cached_property
    def chance_budget(self) -> float | None:
        return float(self._in_money.mean()) if self.goal.budget is not None else None

    @cached_property
    def chance(self) -> float:
        """How likely both are kept; 1 where neither is asked for."""
        return float((self._in_time & self._in_money).mean())

    @property
    def _in_time(self) -> NDArray[np.bool_]:
        allowed = self.goal.days_allowed
        return self.drawn_days <= (math.inf if allowed is None else allowed)

    @property
    def _in_money(self) -> NDArray[np.bool_]:
        return self.drawn_usd <= (math.inf if self.goal.budget is None else self.goal.budget)

    @property
    def least_usd(self) -> float:
        """What the run costs at the least at its price of a GPU-hour."""
        return self.least_days * 24 * self.num_gpus * self.usd_per_gpu_hour

    def with_spares(self, spares: int) -> Forecast:
        """Return the mean of the same run with so many spare hosts; its draws are those of the run as it is."""
        return replace(self, recovery=self.recovery.with_spares(spares))

    @cached_property
    def spares(self) -> tuple[SpareValue, ...]:
        """What spare hosts are worth, from none to as many as hold up a run for less than a thousandth of its time."""
        enough = self.recovery.standby.enough
        counts = sorted({round(enough * k / (MOST_SPARES - 1)) for k in range(MOST_SPARES)})
        found = [(count, self.with_spares(count)) for count in counts]
        return tuple(
            SpareValue(count, one.goodput, one.days, one.end.isoformat() if one.end else None, one.usd)
            for count, one in found
            if one.goodput > LEAST_GOODPUT
        )

    def day(self, days: float) -> date | None:
        """Return the day on which a run of so many days ends; None where the start is not known."""
        return self.goal.day_after(days)

    @property
    def end(self) -> date | None:
        return self.day(self.days)

    def report(self) -> ForecastReport:
        """Return the forecast as `--json` prints it."""
        days = map(self.day, (self.days, *self.days_90))
        end, first, last = (None if day is None else day.isoformat() for day in days)
        return ForecastReport(
            tokens=self.goal.tokens,
            gpus=self.num_gpus,
            days=self.days,
            days_50=self.days_50,
            days_90=self.days_90,
            least_days=self.least_days,
            work_days=self.work_days,
            goodput=self.goodput,
            interruptions=self.interruptions,
            start=self.goal.start,
            end=end,
            end_90=None if first is None or last is None else (first, last),
            usd=self.usd,
            usd_50=self.usd_50,
            usd_90=self.usd_90,
            usd_per_gpu_hour=self.usd_per_gpu_hour,
            deadline_days=self.goal.days_allowed,
            budget_usd=self.goal.budget,
            chance_deadline=self.chance_deadline,
            chance_budget=self.chance_budget,
            chance_both=self.chance,
            moves_with=self.swings,
            spares=self.spares,
            days_percentiles=_percentiles(self.drawn_days),
            usd_percentiles=_percentiles(self.drawn_usd),
            waiting_days=self.waiting_days,
        )


def forecast(
    goal: Goal,
    work_s: float,
    found: Recovery,
    usd_per_gpu_hour: float,
    inputs: tuple[Uncertain, ...],
    with_swings: bool = True,
    least_s: float = 0.0,
    rent_usd_per_gpu_hour: float = 0.0,
    lived: Histories | None = None,
) -> Forecast:
    """Return the end and the cost of a run that needs `work_s` of undisturbed training, and never below `least_s`.

    `lived` are the runs where they are known already: those of the same GPUs at another price.
    """
    drawn = _drawn(inputs)
    lived = lived or live(work_s, found, inputs, least_s)
    usd = _usd(found, lived.days, usd_per_gpu_hour * drawn["price"], rent_usd_per_gpu_hour, drawn["failures"])
    swings = _swings(work_s, found, usd_per_gpu_hour, rent_usd_per_gpu_hour, inputs) if with_swings else ()
    return Forecast(
        goal, found, usd_per_gpu_hour, rent_usd_per_gpu_hour, work_s / 86400, least_s / 86400, lived.days, usd,
        float(lived.waiting_days.mean()), swings,
    )  # fmt: skip


def live(work_s: float, found: Recovery, inputs: tuple[Uncertain, ...], least_s: float = 0.0) -> Histories:
    """Return how runs go for which everything that is not known exactly is drawn anew."""
    drawn = _drawn(inputs)
    work = np.maximum(work_s * drawn["step"], least_s)
    return histories(work, found, failures=drawn["failures"], restart=drawn["restart"], repair=drawn["repair"])


def _usd(
    found: Recovery, days: float | Values, usd_per_gpu_hour: float | Values, rent: float, failures: float | Values = 1.0
) -> Values:
    """Return what so many days cost: the GPUs, the spare hosts, and hosts that are rented while others are away."""
    usd = np.asarray(days * usd_per_gpu_hour * 24.0 * found.parts.paid_gpus, np.float64)
    if not found.parts.rents:
        return usd
    hosts = found.standby.rented_hours(days, found.repair_hours, failures)
    result: Values = usd + hosts * rent * found.parts.num_gpus / found.parts.num_hosts
    return result


def owned_interval(owned: Owning) -> Interval:
    """Return where the price of an owned GPU-hour may lie: the part of a run's cost that is neither time nor luck."""
    rate = owned.usd_per_gpu_hour
    drawn = rate * _drawn(tuple(owned_prices(owned)))["price"] if rate > 0 else np.zeros(1)
    basis = "the ranges of the assumptions, nine of ten cases as far as they hold"
    return Interval(_interval(drawn, 50), _interval(drawn, 90), basis)


def _drawn(inputs: tuple[Uncertain, ...]) -> dict[str, Values]:
    """Return the factors on each thing that inputs act on, one for every draw."""
    random = np.random.default_rng(1)
    factors: dict[str, Values] = {name: np.ones(DRAWS) for name in FACTORS}
    for given in inputs:
        factors[given.acts_on] = factors[given.acts_on] * given.factor(random.standard_normal(DRAWS))
    return factors


def _swings(
    work_s: float, found: Recovery, usd_per_gpu_hour: float, rent: float, inputs: tuple[Uncertain, ...]
) -> tuple[Swing, ...]:
    """Return what each input alone does, the one that moves the cost most first."""
    swings = []
    for given in inputs:
        ends = []
        for factor in (given.low_factor, given.high_factor):
            at = dict.fromkeys(FACTORS, 1.0) | {given.acts_on: factor}
            kept = found.goodput_at(at["failures"], found.begin_s * at["restart"], at["repair"])
            days = work_s * at["step"] / max(float(kept), LEAST_GOODPUT) / 86400
            ends.append((days, float(_usd(found, days, usd_per_gpu_hour * at["price"], rent, at["failures"]))))
        (low_days, low_usd), (high_days, high_usd) = ends
        swings.append(Swing(
            given.name, given.words, given.low, given.value, given.high, given.unit, given.source,
            (low_days, high_days), (low_usd, high_usd),
        ))  # fmt: skip
    return tuple(sorted(swings, key=lambda s: -abs(s.usd[1] - s.usd[0])))


def _percentiles(values: Values) -> tuple[float, ...]:
    return tuple(float(value) for value in np.percentile(values, range(5, 100, 5)))


def _interval(values: Values, percent: float) -> Ends:
    low, high = np.percentile(values, [50 - percent / 2, 50 + percent / 2])
    return float(low), float(high)
