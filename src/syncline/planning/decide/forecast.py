"""When a run ends and what it costs, with intervals, and how likely it keeps its deadline and its budget.

    seen = forecast(goal, work_s, recovery, num_gpus, usd_per_gpu_hour, inputs)
    seen.days, seen.days_90, seen.chance_deadline

Days = tokens / (tokens a second) / goodput; dollars = days x 24 x GPUs x dollars a GPU-hour. Both are computed for a
few thousand draws of everything uncertain, always the same ones, so the same question gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import numpy as np

from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.owning import Owning
from syncline.planning.cost.recovery import Recovery
from syncline.planning.decide.uncertain import Uncertain, owned_prices
from syncline.sim.uncertainty import Interval
from syncline.workload.goal import Goal

DRAWS = 4000
Ends = tuple[float, float]


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


@dataclass(frozen=True)
class Forecast:
    """The end and the cost of one run."""

    goal: Goal
    num_gpus: int
    usd_per_gpu_hour: float
    work_days: float  # if nothing ever failed
    least_days: float  # at the hardware's peak, if nothing ever failed
    goodput: float
    interruptions: float
    days_50: Ends
    days_90: Ends
    usd_50: Ends
    usd_90: Ends
    chance_deadline: float | None  # None: there is none
    chance_budget: float | None
    chance: float  # of both; 1 where neither is asked for
    swings: tuple[Swing, ...]

    @property
    def days(self) -> float:
        return self.work_days / self.goodput

    @property
    def least_usd(self) -> float:
        """What the run costs at the least at its price of a GPU-hour."""
        return self.least_days * 24 * self.num_gpus * self.usd_per_gpu_hour

    @property
    def usd(self) -> float:
        return self.days * 24 * self.num_gpus * self.usd_per_gpu_hour

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
        )


def forecast(
    goal: Goal,
    work_s: float,
    found: Recovery,
    num_gpus: int,
    usd_per_gpu_hour: float,
    inputs: tuple[Uncertain, ...],
    with_swings: bool = True,
    least_s: float = 0.0,
) -> Forecast:
    """Return the end and the cost of a run that needs `work_s` of undisturbed training, and never below `least_s`."""
    drawn = _drawn(inputs)
    drawn["step"] = np.maximum(drawn["step"], least_s / work_s)
    days = _days(work_s, found, drawn)
    usd = days * 24 * num_gpus * usd_per_gpu_hour * drawn["price"]
    # Which failures happen is luck too: their number is random about its mean.
    lost = np.maximum(days - work_s * drawn["step"] / 86400, 0.0)
    mean = np.maximum(found.interruptions_in(1.0) * days * drawn["failures"], 1e-9)
    luck = np.random.default_rng(2).poisson(mean) / mean - 1
    late = lost * luck
    usd, days = usd * (1 + late / days), days + late
    allowed, budget = goal.days_allowed, goal.budget
    in_time = days <= allowed if allowed is not None else np.ones(DRAWS, bool)
    in_money = usd <= budget if budget is not None else np.ones(DRAWS, bool)
    return Forecast(
        goal, num_gpus, usd_per_gpu_hour, work_s / 86400, least_s / 86400, found.goodput,
        found.interruptions_in(work_s / 86400 / found.goodput),
        _interval(days, 50), _interval(days, 90), _interval(usd, 50), _interval(usd, 90),
        float(in_time.mean()) if allowed is not None else None, float(in_money.mean()) if budget is not None else None,
        float((in_time & in_money).mean()),
        _swings(work_s, found, num_gpus, usd_per_gpu_hour, inputs) if with_swings else (),
    )  # fmt: skip


def owned_interval(owned: Owning) -> Interval:
    """Return where the price of an owned GPU-hour may lie: the part of a run's cost that is neither time nor luck."""
    rate = owned.usd_per_gpu_hour
    drawn = rate * _drawn(tuple(owned_prices(owned)))["price"] if rate > 0 else np.zeros(1)
    basis = "the ranges of the assumptions, nine of ten cases as far as they hold"
    return Interval(_interval(drawn, 50), _interval(drawn, 90), basis)


def _drawn(inputs: tuple[Uncertain, ...]) -> dict[str, Values]:
    """Return the factors on each thing that inputs act on, one for every draw."""
    random = np.random.default_rng(1)
    factors: dict[str, Values] = {name: np.ones(DRAWS) for name in ("step", "failures", "restart", "price")}
    for given in inputs:
        factors[given.acts_on] = factors[given.acts_on] * given.factor(random.standard_normal(DRAWS))
    return factors


def _days(work_s: float, found: Recovery, factors: dict[str, Values]) -> Values:
    kept = found.goodput_at(factors["failures"], found.begin_s * factors["restart"])
    result: Values = work_s * factors["step"] / kept / 86400
    return result


def _swings(
    work_s: float, found: Recovery, num_gpus: int, usd_per_gpu_hour: float, inputs: tuple[Uncertain, ...]
) -> tuple[Swing, ...]:
    """Return what each input alone does, the one that moves the cost most first."""
    swings = []
    for given in inputs:
        ends = []
        for factor in (given.low_factor, given.high_factor):
            factors = {name: np.ones(1) for name in ("step", "failures", "restart", "price")}
            factors[given.acts_on] = np.array([factor])
            days = float(_days(work_s, found, factors)[0])
            ends.append((days, days * 24 * num_gpus * usd_per_gpu_hour * float(factors["price"][0])))
        (low_days, low_usd), (high_days, high_usd) = ends
        swings.append(Swing(
            given.name, given.words, given.low, given.value, given.high, given.unit, given.source,
            (low_days, high_days), (low_usd, high_usd),
        ))  # fmt: skip
    return tuple(sorted(swings, key=lambda s: -abs(s.usd[1] - s.usd[0])))


def _interval(values: Values, percent: float) -> Ends:
    low, high = np.percentile(values, [50 - percent / 2, 50 + percent / 2])
    return float(low), float(high)
