"""Sensitivity: one change at a time, what it saves in time and money, best first.

Each change is planned anew, so a faster network may also lead to another split. Closed forms say which changes are
worth trying; those are planned and executed on the changed cluster, as the plan itself was, before anybody is advised
to make them. What is compared is time per token: a change of the batch changes the tokens of a step too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from syncline.describe.model import reported
from syncline.describe.progress import Meter
from syncline.errors import SynclineError
from syncline.planning.block import PlanQuestion
from syncline.planning.changes import QuestionChange, changes, faster_network, half_latency, level, more_lines
from syncline.planning.cost.recovery import faster_recoveries
from syncline.planning.decision import Decision
from syncline.planning.evaluate import Evaluator
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.planning.search import SearchResult, search
from syncline.planning.space import Axes
from syncline.planning.upgrade import (
    faster_links,
)

#: Chances that a change brings what is predicted; all assumed. Settings and hardware rarely disappoint; numerics may
#: not converge: fp8 products are used at scale (DeepSeek-V3), low-bit gradients and rare meetings less often.
LIKELY = {"free": 0.9, "hardware": 0.9, "numerics": 0.5, "zero-bubble": 0.7, "fp8": 0.7, "int8": 0.6,
          "restart": 0.8, "even-batch": 0.8}  # fmt: skip
#: Savings below this part of the time are smaller than what the step model can tell apart.
LEAST_SAVING = 0.005
#: Changes of the network: none saves more than a network without limits would.
NETWORK = frozenset({"bandwidth", "latency", "ports", "link", "oversubscription", "wan"})
#: Changes that are tried at most: as many as are printed.
ADVISED = 3


@dataclass(frozen=True)
class Improvement:
    """One change and its worth. `saving` is the part of the time of a token that it saves; money is per year."""

    name: str
    words: str
    step_time_s: float
    saving: float
    usd_per_year: float | None
    price_usd: float | None  # what it costs; None: not known
    plan: str
    kind: str  # free (a setting), numerics (changes what training sees), hardware
    note: str
    chance: float = 1.0  # that it brings what is predicted
    tried: bool = False  # planned and executed on the changed cluster; else by closed forms, and never advised

    def net_usd_per_year(self, years: float) -> float | None:
        """Return dollars a year after risk and after its price over so many years; None where either is not known."""
        if self.usd_per_year is None or self.price_usd is None:
            return None
        return self.chance * self.usd_per_year - self.price_usd / years

    @reported
    def payback_years(self) -> float | None:
        """Years until it has earned its price; None where either is not known or it never does."""
        if self.price_usd is None or not self.usd_per_year or self.usd_per_year <= 0:
            return None
        return self.price_usd / self.usd_per_year


def actions_of(
    evaluator: Evaluator, best: Plan, axes: Axes, fix: Mapping[str, Any], meter: Meter | None = None
) -> tuple[tuple[Improvement, ...], float | None]:
    """Return every change that applies, largest saving first, and what a network without limits would save."""
    question, money = evaluator.question, evaluator.money
    # Near the best plan: the way its state is sharded stays, and what never wins is not tried again.
    schedule = tuple(s for s in axes.schedule if s != "gpipe")
    near = replace(axes.near(), zero=(best.decision.zero,), schedule=schedule)
    bound = _network_bound(evaluator, best, near, fix, meter)
    unchanged = _looked(question, best, near, fix, meter).best
    trials = [
        ChangeTrial(evaluator, best, change, axes, fix, unchanged[0].step_s if unchanged else 0.0)
        for change in changes(question, best, evaluator.fabric, fix, money)
    ]
    found = {trial.change.name: trial for trial in trials if trial.look(near, meter)}
    actions = {name: trial.expected(bound if name in NETWORK else None) for name, trial in found.items()}
    if money is not None:
        actions |= {action.name: action for action in recovery_actions(best, money)}
    # Most worth first; what is tried may fall back, and the next is tried then.
    untried = [action.name for action in worthwhile(tuple(actions.values()), money)]
    for name in [*(["repair"] if "repair" in found else []), *untried]:
        if len([a for a in worthwhile(tuple(actions.values()), money) if a.tried]) >= ADVISED and name != "repair":
            break
        if name in found and not actions[name].tried:
            actions[name] = found[name].tried(meter)
    if bound is not None:  # a split that wins on a faster network wins on one without limits too
        bound = max([bound, *(action.saving for name, action in actions.items() if name in NETWORK and action.tried)])
    return tuple(sorted(actions.values(), key=lambda action: -action.saving)), bound


@dataclass(eq=False)
class ChangeTrial:
    """A change that is looked at by closed forms, and tried where they promise something."""

    evaluator: Evaluator
    plan: Plan
    change: QuestionChange
    axes: Axes
    fix: Mapping[str, Any]
    unchanged_s: float
    """The closed form's best without the change."""
    looked: SearchResult = field(default_factory=SearchResult)

    @property
    def question(self) -> PlanQuestion:
        return self.change.apply(self.evaluator.question)

    def look(self, axes: Axes, meter: Meter | None) -> bool:
        """Search the changed question, on the GPUs of the plan and on all: a thin line may have left some idle."""
        freed = {*self.change.axes, *(["num_micro"] if self.change.tokens != 1.0 else [])}
        fixed = {name: value for name, value in self.fix.items() if name not in freed}
        self.looked = _looked(self.question, self.plan, replace(axes, **dict(self.change.axes)), fixed, meter)
        return bool(self.looked.best)

    def expected(self, bound: float | None = None) -> Improvement:
        """Return the closed form's opinion: its best with the change over its best without, and at most `bound`."""
        looked, now_s = self.looked.best[0], self.plan.predicted.step_time_s
        step_s = now_s * looked.step_s / (self.unchanged_s or looked.step_s)
        return self._improvement(max(step_s, 0.0 if bound is None else (1 - bound) * now_s), looked.decision)

    def tried(self, meter: Meter | None) -> Improvement:
        """Return the change planned and executed on the changed cluster; the plan as it is stays a candidate."""
        try:
            fabric = self.change.rebuilt(self.evaluator.fabric)
        except SynclineError as error:
            return replace(self.expected(), saving=0.0, usd_per_year=0.0, note=f"cannot be built: {error.message}")
        self.look(self.axes, meter)  # as `plan` would look on the changed cluster
        changed = Evaluator(fabric, self.question, None, self.plan.num_gpus)
        same = [self.plan.decision] if not self.change.axes and self.change.tokens == 1.0 else []
        found = changed.ranked(self.looked.best, same, like=self.evaluator)[0].plan
        return replace(self._improvement(found.predicted.step_time_s, found.decision), tried=True)

    def _improvement(self, step_s: float, decision: Decision) -> Improvement:
        change, money = self.change, self.evaluator.money
        saving = 1 - step_s / change.tokens / self.plan.predicted.step_time_s
        worth = saving * money.usd_per_year(self.plan.num_gpus) if money else None
        return Improvement(
            change.name, change.words, step_s, saving, worth, change.price[0], decision.label, change.kind,
            change.price[1], LIKELY.get(change.name, LIKELY[change.kind]),
        )  # fmt: skip


def _looked(
    question: PlanQuestion, best: Plan, axes: Axes, fix: Mapping[str, Any], meter: Meter | None
) -> SearchResult:
    """Return the best splits on the GPUs of a plan, and on all."""
    looked = SearchResult()
    for count in {best.decision.num_gpus, question.job.gpus or best.num_gpus}:
        with suppress(SynclineError):
            looked = looked.joined(search(question, count, axes=axes, fix=fix, keep=20, meter=meter))
    if not looked.complete:
        raise KeyboardInterrupt
    return looked


def _network_bound(
    evaluator: Evaluator, best: Plan, axes: Axes, fix: Mapping[str, Any], meter: Meter | None
) -> float | None:
    """Return the part of the time that a network without limits would save: no purchase of network saves more."""
    endless = 1e4
    unlimited = more_lines(half_latency(faster_network(evaluator.question, endless)), endless)
    unlimited = level(replace(unlimited, reach=replace(unlimited.reach, site_s=0.0)))
    looked = _looked(unlimited, best, axes, fix, meter)
    if not looked.best:
        return None
    free = Evaluator(faster_links(evaluator.fabric, endless), unlimited, None, best.num_gpus)
    least_s = free.ranked(looked.best, [best.decision], like=evaluator)[0].plan.predicted.step_time_s
    return max(0.0, 1 - least_s / best.predicted.step_time_s)


def recovery_actions(best: Plan, money: Money) -> list[Improvement]:
    """Return changes of checkpoints and restarts: they leave the step alone and the time of a token shorter."""
    step_s = best.predicted.step_time_s
    now = money.recovery(step_s, best.num_gpus, best.decision.replica_gpus)
    actions = []
    for name, words, then in faster_recoveries(now):
        saving = 1 - now.goodput / then.goodput
        kind, price = ("hardware", None) if name == "storage" else ("free", 0.0)
        note = f"goodput {then.goodput:.1%} instead of {now.goodput:.1%}"
        more = then.parts.paid_gpus - now.parts.paid_gpus
        worth = saving * money.usd_per_year(now.parts.paid_gpus) - money.usd_per_year(more)
        chance = LIKELY.get(name, LIKELY[kind])
        actions.append(
            Improvement(name, words, step_s, saving, worth, price, best.decision.label, kind, note, chance, tried=True)
        )
    return actions


def worthwhile(actions: Sequence[Improvement], money: Money | None) -> tuple[Improvement, ...]:
    """Return the actions worth doing, most money first, tried or not; nobody rewires a cluster that is rented.

    Without prices they are those that cost nothing, the largest saving after risk first.
    """
    if money is None:
        free = [a for a in actions if a.saving >= LEAST_SAVING and a.kind != "hardware"]
        return tuple(sorted(free, key=lambda a: -a.saving * a.chance))
    years = money.assumptions.years
    ranked = []
    for action in actions:
        net = action.net_usd_per_year(years)
        if net is None or net <= 0 or action.saving < LEAST_SAVING or (action.kind == "hardware" and not money.owned):
            continue
        ranked.append((net, action))
    return tuple(action for _, action in sorted(ranked, key=lambda pair: -pair[0]))
