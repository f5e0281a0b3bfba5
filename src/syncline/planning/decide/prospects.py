"""Does a run keep its deadline and its budget, what is the cheapest and the fastest that does, and what if none does?

    seen = prospects(evaluator, best, money, axes, tie_within)
    seen.now.forecast.end, seen.cheapest, seen.fastest, seen.needed

Options are the cluster's GPUs or a part of them, at the price of owning and of every cloud that rents them. Where none
is likely enough to meet the goal, larger clusters of the same hosts are tried until some are, and every change that
costs nothing (a setting, a number format) is tried on the GPUs that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncline.describe.progress import Meter
from syncline.planning.block import PlanQuestion
from syncline.planning.decide.forecast import Ends, Forecast, ForecastReport, forecast, live
from syncline.planning.decide.uncertain import inputs_of
from syncline.planning.decision import Decision
from syncline.planning.evaluate import Evaluator
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.planning.sensitivity import Improvement
from syncline.planning.sizes import best_on
from syncline.planning.space import Axes
from syncline.sim.step.floor import roof_s
from syncline.workload.job import Job

#: An option meets a goal if it is at least this likely to keep both deadline and budget.
LIKELY = 0.8
FEWER = (1 / 8, 1 / 4, 1 / 2, 3 / 4)
MORE = (1.25, 1.5, 2, 3, 4, 6, 8)
LARGER_TRIED = 3
#: Of a job that does not say when it is done; what one token costs does not depend on it.
ENDLESS_TOKENS = 1e12


@dataclass(frozen=True)
class Option:
    """One way to run the job: so many GPUs, paid for in one way."""

    num_gpus: int
    basis: str
    step_time_s: float
    label: str
    forecast: Forecast
    capital_usd: float = 0.0  # of what must be bought first
    change: Improvement | None = None  # what is done otherwise than planned

    @property
    def meets(self) -> bool:
        """Whether both deadline and budget are likely kept, what must be bought first included."""
        return self.chance >= LIKELY

    @property
    def chance(self) -> float:
        """How likely both deadline and budget are kept; hardware that costs more than the budget keeps none."""
        return 0.0 if self._unaffordable else self.forecast.chance

    @property
    def chance_budget(self) -> float | None:
        return 0.0 if self._unaffordable else self.forecast.chance_budget

    @property
    def _unaffordable(self) -> bool:
        budget = self.forecast.goal.budget
        return budget is not None and self.capital_usd > budget

    @property
    def excess(self) -> float:
        """How many times over the goal it is: of days or of dollars, whichever is worse."""
        goal, over = self.forecast.goal, [0.0]
        if goal.days_allowed is not None:
            over.append(self.forecast.days / max(goal.days_allowed, 1e-9))
        if goal.budget is not None:
            over.append(max(self.forecast.usd, self.capital_usd) / goal.budget)
        return max(over)

    def report(self) -> OptionReport:
        """Return the option as `--json` prints it."""
        f, change = self.forecast, self.change
        return OptionReport(
            gpus=self.num_gpus,
            basis=self.basis,
            step_time_s=self.step_time_s,
            split=self.label,
            days=f.days,
            days_90=f.days_90,
            usd=f.usd,
            usd_90=f.usd_90,
            end=None if f.end is None else f.end.isoformat(),
            chance_deadline=f.chance_deadline,
            chance_budget=self.chance_budget,
            chance_both=self.chance,
            meets=self.meets,
            capital_usd=self.capital_usd,
            change=None if change is None else change.words,
            works=None if change is None else change.chance,
        )


@dataclass(frozen=True)
class OptionReport:
    """A way to do a run: its fields are the JSON."""

    gpus: int
    basis: str
    step_time_s: float
    split: str
    days: float
    days_90: Ends
    usd: float
    usd_90: Ends
    end: str | None
    chance_deadline: float | None
    chance_budget: float | None
    chance_both: float
    meets: bool
    capital_usd: float
    change: str | None
    """What would be changed for it; None: nothing."""
    works: float | None
    """How likely that change brings what is predicted."""


@dataclass(frozen=True)
class RunReport(ForecastReport):
    """A run as planned, and the options beside it: its fields are the JSON."""

    likely: float
    meets: bool
    advised: OptionReport | None
    cheapest: OptionReport | None
    fastest: OptionReport | None
    options: tuple[OptionReport, ...]
    needed: tuple[OptionReport, ...]
    larger: tuple[OptionReport, ...]
    changed: tuple[OptionReport, ...]


@dataclass(frozen=True)
class Prospects:
    """The run as planned, the options beside it, and what would meet the goal if none of them does."""

    now: Option
    options: tuple[Option, ...]
    larger: tuple[Option, ...]
    tie_within: float  # closer prices are a tie (`PlanResult.tie_within`)
    changed: tuple[Option, ...] = ()  # with a change that costs nothing

    @property
    def _meeting(self) -> list[Option]:
        return [option for option in self.options if option.meets]

    @property
    def cheapest(self) -> Option | None:
        return min(self._meeting, key=lambda option: option.forecast.usd, default=None)

    @property
    def fastest(self) -> Option | None:
        return min(self._meeting, key=lambda option: (option.forecast.days, option.forecast.usd), default=None)

    @property
    def advised(self) -> Option | None:
        """The fastest of the options that tie for the least cost; the run as planned if it is one of them."""
        least = self.cheapest
        if least is None:
            return None
        tied = [option for option in self._meeting if option.forecast.usd <= (1 + self.tie_within) * least.forecast.usd]
        return min(tied, key=lambda option: (option.forecast.days, option is not self.now, option.forecast.usd))

    @property
    def needed(self) -> tuple[Option, ...]:
        """What to buy and what to rent, smallest first, where nothing that is there meets the goal."""
        return tuple(option for option in self.larger if option.meets)

    @property
    def free(self) -> Option | None:
        """The change that costs nothing and meets the goal, the likeliest to work; of equals the fastest."""
        met = [
            (option.change.chance, -option.forecast.days, option)
            for option in self.changed
            if option.change and option.meets
        ]
        return max(met, key=lambda each: each[:2])[2] if met else None

    @property
    def ranked(self) -> list[Option]:
        """The run as planned, then what meets the goal, cheapest first, then what comes nearest to it."""
        others = [option for option in (*self.options, *self.larger) if option is not self.now]
        met = sorted((o for o in others if o.meets), key=lambda o: o.forecast.usd)
        missed = sorted((o for o in others if not o.meets), key=_distance)
        return [self.now, *met, *missed]

    @property
    def nearest(self) -> Option:
        """What comes nearest to a goal that nothing meets: the likeliest, of equals the one that misses it least."""
        return min((*self.options, *self.larger), key=_distance)

    def report(self) -> RunReport:
        """Return what `syncline plan --json` gives as `run`."""
        return RunReport(
            **vars(self.now.forecast.report()),
            likely=LIKELY,
            meets=self.now.meets,
            advised=self.advised.report() if self.advised else None,
            cheapest=self.cheapest.report() if self.cheapest else None,
            fastest=self.fastest.report() if self.fastest else None,
            options=tuple(option.report() for option in self.options),
            needed=tuple(option.report() for option in self.needed),
            larger=tuple(option.report() for option in self.larger),
            changed=tuple(option.report() for option in self.changed),
        )


def _distance(option: Option) -> tuple[float, float, float]:
    return -round(option.chance, 2), option.excess, option.forecast.usd


def prospects(
    evaluator: Evaluator, best: Plan, money: Money, axes: Axes, tie_within: float,
    actions: Sequence[Improvement] = (), meter: Meter | None = None,
) -> Prospects:  # fmt: skip
    """Return the prospects of the run that a job is for."""
    question = evaluator.question
    now = run_option(question, best, money)
    near = replace(axes.near(), zero=(best.decision.zero,), gradient_bytes=axes.gradient_bytes)
    purses = _purses(money)
    used = best.decision.num_gpus
    options = [now]
    # The plan may leave some idle, and pays for them.
    others = [purse for purse in purses if purse.basis != money.basis or used < best.num_gpus]
    options += _options(question, best, others, used, best.predicted.step_time_s, best.decision)
    for count in _counts(question, used, FEWER):
        options += _priced(evaluator, best, purses, count, near, meter)
    larger: list[Option] = []
    changed: list[Option] = []
    if not any(option.meets for option in options):
        changed = [_changed(question, best, money, action) for action in actions if _costs_nothing(action)]
        for count in _counts(question, best.num_gpus, MORE):
            larger += _priced(evaluator, best, purses, count, near, meter)
            if len({option.num_gpus for option in larger if option.meets}) >= LARGER_TRIED:
                break
    return Prospects(now, tuple(options), tuple(larger), tie_within, tuple(changed))


def _costs_nothing(action: Improvement) -> bool:
    return action.kind != "hardware" and action.price_usd == 0 and action.saving > 0


def _changed(question: PlanQuestion, best: Plan, money: Money, action: Improvement) -> Option:
    """Return the run as planned with one change made; a change of the batch counts by the token."""
    step_s = best.predicted.step_time_s * (1 - action.saving)
    option = _options(question, best, [money], best.num_gpus, step_s, best.decision)[0]
    return replace(option, label=action.plan, change=action)


def run_option(question: PlanQuestion, best: Plan, money: Money) -> Option:
    """Return the run on the GPUs of a plan at the price of its cluster."""
    step_s = best.predicted.step_time_s
    return _options(question, best, [money], best.num_gpus, step_s, best.decision, swings=True)[0]


def stated_run(job: Job, money: Money, step_s: float, num_gpus: int) -> Forecast:
    """Return the run of a job whose step is known."""
    found = money.recovery(step_s, num_gpus)
    work_s = (job.tokens or ENDLESS_TOKENS) / (job.batch.global_ * job.batch.sequence) * step_s
    price, rent = money.usd_per_gpu_hour, money.rent_usd_per_gpu_hour
    return forecast(
        job, work_s, found, price, inputs_of(money, None, found), least_s=work_s, rent_usd_per_gpu_hour=rent
    )


def _purses(money: Money) -> list[Money]:
    """Return the money of a job owned and at every cloud that rents its GPUs, as asked first."""
    account, use = money.account, money.assumptions.utilisation
    found = [replace(money, basis="owned", usd_per_gpu_hour=account.owned.usd_per_gpu_hour)]
    found += [
        replace(money, basis=f"rented: {quote.label}", usd_per_gpu_hour=quote.usd_per_used_gpu_hour(use))
        for quote in account.quotes
    ]
    return sorted(found, key=lambda purse: (purse.basis != money.basis, purse.usd_per_gpu_hour))


def _counts(question: PlanQuestion, num_gpus: int, factors: Sequence[float]) -> list[int]:
    per_host = question.machine.gpus_per_host
    whole = {max(1, round(num_gpus * factor / per_host)) * per_host for factor in factors}
    return sorted(whole - {num_gpus})


def _priced(
    evaluator: Evaluator, best: Plan, purses: Sequence[Money], count: int, axes: Axes, meter: Meter | None
) -> list[Option]:
    found = best_on(evaluator, count, axes, meter=meter)
    if found is None:
        return []
    return _options(evaluator.question, best, purses, count, found.predicted.step_time_s, found.decision)


def _options(
    question: PlanQuestion, best: Plan, purses: Sequence[Money], num_gpus: int, step_s: float, decision: Decision,
    swings: bool = False,
) -> list[Option]:  # fmt: skip
    """Return the same runs on so many GPUs, paid for in several ways."""
    job = question.job
    steps = (job.tokens or ENDLESS_TOKENS) / best.tokens_per_step
    work_s = steps * step_s
    least_s = steps * min(roof_s(job, question.machine, num_gpus), step_s)
    options, lived = list[Option](), None
    for money in purses:
        found = money.recovery(step_s, num_gpus, decision.replica_gpus)
        inputs = inputs_of(money, best.predicted, found)
        lived = lived or live(work_s, found, inputs, least_s)
        price, rent = money.usd_per_gpu_hour, money.rent_usd_per_gpu_hour
        seen = forecast(job, work_s, found, price, inputs, swings, least_s, rent, lived)
        options.append(Option(num_gpus, money.basis, step_s, decision.label, seen, _capital(money, num_gpus)))
    return options


def _capital(money: Money, num_gpus: int) -> float:
    """Return the price of the GPUs that are not there yet, with their part of the network."""
    owned = money.account.owned
    extra = max(0, num_gpus - owned.num_gpus)
    return owned.capital_usd / owned.num_gpus * extra if money.owned else 0.0
