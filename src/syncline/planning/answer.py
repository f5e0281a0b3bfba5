"""The answer of `syncline plan`: the best plan for a job on a cluster, what limits it, and what to change first.

answer = make_plan(load("h100-64-rail"), named_job("llama3-70b"))
answer.best.predicted.step_time_s, answer.actions[0].words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from syncline.describe import units
from syncline.describe.progress import Meter, Progress
from syncline.describe.today import today
from syncline.errors import PlanError, SynclineError
from syncline.fabric.assumed import assumed_of
from syncline.fabric.fabric import Fabric
from syncline.fabric.faults import fault_words
from syncline.planning.block import PlanQuestion
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.cost.recovery import RecoveryReport
from syncline.planning.decide.prospects import Prospects, RunReport, prospects, run_option
from syncline.planning.decision import Decision, Split
from syncline.planning.exchange import exchange_of
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.money import Money, money_of
from syncline.planning.plan import BestPlan, Plan, PlanCost, predicted_of
from syncline.planning.prune import nothing_fits
from syncline.planning.replay import Pair, checked
from syncline.planning.search import SearchResult, SearchTask, search
from syncline.planning.sensitivity import LIKELY, Improvement, actions_of, network_bound, worthwhile
from syncline.planning.sizes import SizePlan, front, gpu_counts, size_plan
from syncline.planning.space import OFFLOADS, USUAL, Axes, rows_of
from syncline.sim.step.collectives import nic_rates, priced_collectives
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.laid import is_laid
from syncline.sim.step.limit import Limit
from syncline.sim.step.machine import machine_from_fabric, reach_of
from syncline.sim.step.step import IGNORES, StepResult, step
from syncline.sim.uncertainty import Interval
from syncline.workload.job import Job
from syncline.workload.software import Assumed

OBJECTIVES = ("time", "cost", "pareto")
INTERRUPTED = "interrupted: the best of what was looked at"
#: Published runs whose memory was more than about 90 % full were 7 to 22 % slower than predicted: allocators retry.
HEADROOM = 0.08


@dataclass(frozen=True, eq=False)
class PlanResult:
    """Everything `syncline plan` says."""

    best: Plan
    result: StepResult
    others: tuple[Plan, ...]
    actions: tuple[Improvement, ...]
    found: SearchResult
    objective: str
    given: StepResult | None
    given_problem: str
    points: tuple[SizePlan, ...]
    money: Money | None
    notes: tuple[str, ...]
    question: PlanQuestion
    run: Prospects | None = None  # what the job is for, where it says so
    network_bound: float | None = None  # part of the time that a network without limits would save
    assumed: tuple[str, ...] = ()  # what the cluster's file does not say
    faults: str = ""  # what it says is broken

    @property
    def worthwhile(self) -> tuple[Improvement, ...]:
        """What is worth doing, most money after price and risk first."""
        return worthwhile(self.actions, self.money)

    @property
    def tie_within(self) -> float:
        """How far apart two splits of one job must be: half of the published pairs of one sweep were off by more."""
        return _tie_within(self.result)

    def is_tie(self, other: Plan) -> bool:
        """Whether the model cannot tell another split from the best one."""
        return other.predicted.step_time_s / self.best.predicted.step_time_s - 1 <= self.tie_within

    @property
    def cost_interval(self) -> Interval | None:
        """Where the price of a token may lie: the same draws of everything uncertain as the cost of the run."""
        cost, money = self.best.cost, self.money
        if cost is None or money is None:
            return None
        seen = run_option(self.question, self.best, money).forecast if self.run is None else self.run.now.forecast
        each = cost.cost_per_token_usd / seen.usd
        basis = "the step's error, failures, restarts and the price of a GPU-hour, each drawn over its range"
        return Interval(seen.usd_50, seen.usd_90, basis).scaled(each)

    def report(self) -> PlanReport:
        """Return what `syncline plan --json` prints."""
        p, money, given = self.best, self.money, self.given
        return PlanReport(
            cluster=p.cluster,
            job=p.job,
            model=p.model,
            gpu=p.gpu,
            gpus=p.num_gpus,
            objective=self.objective,
            best=p.best(),
            limit=p.limit,
            actions=self.actions,
            worthwhile=tuple(action.name for action in self.worthwhile),
            network_bound=self.network_bound,
            assumed_of_cluster=self.assumed,
            faults=self.faults,
            run=self.run.report() if self.run else None,
            recovery=money.recovery(p.predicted.step_time_s, p.num_gpus).report() if money else None,
            evaluated=self.found.num_considered,
            fitting=self.found.num_fitting,
            cpu_s=self.found.cpu_s,
            wall_s=self.found.wall_s,
            complete=self.found.complete,
            cost=p.cost,
            given=None if given is None else GivenPlan(
                given.step_time_s, given.fits, given.job.parallel.model_dump() | {"micro": given.job.batch.micro}
            ),
            others=tuple(
                OtherPlan(o.predicted.step_time_s, o.predicted.memory_bytes, o.predicted.interval, self.is_tie(o),
                          o.decision.parallel())
                for o in self.others
            ),
            tie_within=self.tie_within,
            cost_interval=self.cost_interval,
            pareto=self.points,
            interval=p.predicted.interval,
            assumed=self.result.facts.assumed,
            notes=self.notes,
        )  # fmt: skip


@dataclass(frozen=True)
class GivenPlan:
    """The split that the job states."""

    step_time_s: float
    fits: bool
    parallel: Split


@dataclass(frozen=True)
class OtherPlan:
    """A plan that is not much slower than the best."""

    step_time_s: float
    memory_bytes: float
    interval: Interval
    tie: bool
    """Whether the model cannot tell it from the best one."""
    parallel: Split


@dataclass(frozen=True)
class PlanReport:
    """The answer of `syncline plan`: its fields are the JSON."""

    cluster: str
    job: str
    model: str
    gpu: str
    gpus: int
    objective: str
    best: BestPlan
    limit: Limit
    actions: tuple[Improvement, ...]
    worthwhile: tuple[str, ...]
    """Names of actions, most money after price and risk first."""
    network_bound: float | None
    """Part of the time that a network without limits would save."""
    assumed_of_cluster: tuple[str, ...]
    faults: str
    run: RunReport | None
    recovery: RecoveryReport | None
    evaluated: int
    fitting: int
    cpu_s: float
    wall_s: float
    complete: bool
    cost: PlanCost | None
    given: GivenPlan | None
    others: tuple[OtherPlan, ...]
    tie_within: float
    cost_interval: Interval | None
    pareto: tuple[SizePlan, ...]
    interval: Interval
    assumed: dict[str, Assumed]
    notes: tuple[str, ...]
    ignores: tuple[str, ...] = IGNORES


def _tie_within(result: StepResult) -> float:
    pair = result.calibrated_spread
    return max(pair.high_50, 1 / pair.low_50) - 1


def make_plan(
    fabric: Fabric,
    job: Job,
    *,
    axes: Axes = USUAL,
    fix: Mapping[str, Any] | None = None,
    objective: str = "time",
    assumptions: Assumptions | None = None,
    prices: Prices | None = None,
    constants: Constants | None = None,
    headroom: float = HEADROOM,
    framework: str = "",
    workers: int = 1,
    progress: Progress | None = None,
    spread: Callable[[list[SearchTask]], Iterator[SearchResult]] | None = None,
    with_actions: bool = True,
    with_run: bool = True,
    execute: bool = False,
) -> PlanResult:
    """Return the best plan for a job on a fabric, with alternatives, sensitivities and prices.

    `execute` runs the best plans at flow level and ranks them by that where it disagrees (`plan/replay.py`).
    """
    fix = dict(fix or {})
    if objective not in OBJECTIVES:
        raise PlanError(f'there is no objective "{objective}".', hint=f"It is one of {', '.join(OBJECTIVES)}.")
    spares: tuple[str, ...] = OFFLOADS
    stated = ""
    if framework:
        job, stated = named_framework(framework).stated(job)
    question, num_gpus = ask(fabric, job, fix, constants, headroom)
    if framework:
        chosen = named_framework(framework)
        question, axes = replace(question, framework=framework), chosen.axes(axes)
        spares = tuple(word for word in OFFLOADS if word in chosen.offload)
    money, note = money_of(fabric, job, assumptions, prices)
    if objective != "time" and money is None:
        raise PlanError(f"the cheapest plan needs prices, and this cluster is {note}", hint="Set host_price_usd.")
    how: dict[str, Any] = {"axes": axes, "fix": fix, "workers": workers, "meter": Meter(progress), "spread": spread}
    question, looked, order = _fewer(question, num_gpus, how, job)
    if spares and _memory_decides(looked, fix, axes):
        spare = how | {"axes": replace(axes, offload=spares), "fix": fix}
        question, looked, order = _better((question, looked, order), _fewer(question, num_gpus, spare, job))
    if not looked.best and looked.complete:  # nothing is likely to fit: what may, and says how likely that is
        question, looked, order = _fewer(replace(question, headroom=0.0, least_chance=0.5), num_gpus, how, job)
    points: list[SizePlan] = []
    if objective != "time":
        looked, points = _counts(question, num_gpus, axes, fix, money, looked, objective)
    if not looked.best:
        raise nothing_fits(question, looked, num_gpus, axes, bool(fix))
    pairs, replayed = _plans(fabric, question, looked, money), ()  # type: tuple[tuple[Pair, ...], tuple[str, ...]]
    if execute:
        pairs, replayed = checked(
            fabric, pairs, question.constants, money, lambda: _depths(fabric, question, pairs, how, money)
        )
    plans, result = tuple(plan for plan, _ in pairs), pairs[0][1]
    given, problem = _given(question, job, fabric)
    best = plans[0]
    actions: tuple[Improvement, ...] = ()
    bound: float | None = None
    run: Prospects | None = None
    meter: Meter = how["meter"]
    try:
        if with_actions:
            actions = actions_of(question, best, fabric, money, axes, fix, meter)
            bound = network_bound(question, best, axes, fix, meter)
        if money is not None and job.tokens and with_run:
            run = prospects(question, best, money, axes, _tie_within(result), actions, meter)
    except KeyboardInterrupt:
        looked = replace(looked, complete=False)
    if given is not None and given.step_time_s > 1.01 * best.predicted.step_time_s and given.fits:
        actions = (_own_layout(given, best, money), *actions)
    began = run.now.forecast.goal.began(today()) if run is not None else ""
    return PlanResult(
        best=best, result=result, others=plans[1:], actions=tuple(sorted(actions, key=lambda a: -a.saving)),
        found=looked, objective=objective, given=given, given_problem=problem, points=tuple(points), money=money,
        notes=tuple(filter(None, (note, stated, order, *replayed, began, "" if looked.complete else INTERRUPTED))),
        question=question, run=run, network_bound=bound, assumed=assumed_of(fabric.spec),
        faults=fault_words(fabric, fabric.spec.faults),
    )  # fmt: skip


Looked = tuple[PlanQuestion, SearchResult, str]


def _memory_decides(looked: SearchResult, fix: Mapping[str, Any], axes: Axes) -> bool:
    """Say whether to try offloading to the host as well: nothing fits without it, and nobody asked for it anyway."""
    return not looked.best and looked.complete and "offload" not in fix and axes.offload == ("none",)


def _better(first: Looked, second: Looked) -> Looked:
    """Return the better of two searches, with what both looked at."""
    joined = replace(first[1].joined(second[1]), wall_s=first[1].wall_s + second[1].wall_s)
    wins = second[1].best and (not first[1].best or second[1].best[0].step_s < first[1].best[0].step_s)
    question, _, note = second if wins else first
    return question, joined, note


def _fewer(
    question: PlanQuestion, num_gpus: int, how: Mapping[str, Any], job: Job
) -> tuple[PlanQuestion, SearchResult, str]:
    """Return the best on all GPUs or, where lines out of sites, pods or racks are thin, inside one of those."""
    chosen, looked, note = _placed(question, num_gpus, how)
    for count, name in () if job.gpus is not None else question.reach.parts(num_gpus):
        try:
            other, found, order = _placed(question, count, how)
        except SynclineError:  # what is fixed does not divide there
            continue
        if not looked.best and not found.best:
            continue
        faster = not looked.best or (found.best and found.best[0].step_s < looked.best[0].step_s)
        if faster:
            chosen = other
            note = f"{name} alone, {count:,} of {num_gpus:,} GPUs"
            if looked.best:
                note += f", is faster than all of them ({units.show_time(looked.best[0].step_s)})"
            note += f"; {order}" * bool(order)
        looked = replace(looked.joined(found), wall_s=looked.wall_s + found.wall_s)
    return chosen, looked, note


def _placed(question: PlanQuestion, num_gpus: int, how: Mapping[str, Any]) -> tuple[PlanQuestion, SearchResult, str]:
    """Return the question with the placement that wins, what was found in all, and a note where it is not `packed`."""
    if "placement" in how["fix"]:
        return question, search(question, num_gpus, **how), ""
    looked, usual_s = SearchResult(), 0.0
    for placement in question.reach.placements(num_gpus):
        asked = replace(question, reach=replace(question.reach, placement=placement))
        found = search(asked, num_gpus, **how)
        usual_s = usual_s or (found.best[0].step_s if found.best else 0.0)
        looked = replace(looked.joined(found), wall_s=looked.wall_s + found.wall_s)
        if not found.complete:
            break
    if not looked.best:
        return question, looked, ""
    best = looked.best[0]
    chosen = replace(question, reach=replace(question.reach, placement=best.decision.placement))
    saved = 1 - best.step_s / usual_s
    note = f"ranks placed as {best.decision.placement} save {saved:.1%} of the step against packed" if saved > 0 else ""
    return chosen, looked, note


def ask(
    fabric: Fabric,
    job: Job,
    fix: Mapping[str, Any] | None = None,
    constants: Constants | None = None,
    headroom: float = 0.0,
) -> tuple[PlanQuestion, int]:
    """Return what is planned and on how many ranks."""
    machine = machine_from_fabric(fabric)
    reach = reach_of(fabric, machine, str((fix or {}).get("placement", "packed")))
    total = machine.num_gpus * max(machine.gpu.num_dies, 1)
    if job.gpus is not None and job.gpus > total:
        raise PlanError(
            f"the job asks for {job.gpus:,} GPUs, but {fabric.name} has {total:,}.", hint=f"gpus: {total} fits."
        )
    return PlanQuestion(job, machine, reach, constants or default_constants(), headroom), job.gpus or total


def plan_of(
    fabric: Fabric, question: PlanQuestion, decision: Decision, money: Money | None, num_gpus: int
) -> tuple[Plan, StepResult]:
    """Return one decision as a plan: priced on the fabric, as `step` prices it."""
    result = step(fabric, decision.job(question.job, question.machine.domain), question.constants)
    way = exchange_of(result, question.constants)
    if way is not None:
        decision = replace(decision, algorithm=way.algorithm, bucket_bytes=way.bucket_bytes)
    tokens = question.job.batch.global_ * question.job.batch.sequence
    cost = money.cost(result.step_time_s, tokens, num_gpus) if money else None
    plan = Plan(
        cluster=fabric.name, job=question.job.name, model=question.job.model.name, gpu=question.machine.gpu.name,
        num_gpus=num_gpus, tokens_per_step=tokens, decision=decision, predicted=predicted_of(result),
        limit=result.limit, cost=cost, exchange=way,
        collectives=priced_collectives(result, decision.bucket_bytes),
        links=nic_rates(result),
    )  # fmt: skip
    return plan, result


def _depths(
    fabric: Fabric, question: PlanQuestion, pairs: tuple[Pair, ...], how: Mapping[str, Any], money: Money | None
) -> Iterator[Pair]:
    """Yield the best plan of every pipeline depth that no plan has, on as many GPUs as the first."""
    first, fix = pairs[0][0], how["fix"]
    num_gpus = first.decision.num_gpus
    known = {plan.decision.pp for plan, _ in pairs}
    depths = rows_of(question.job, num_gpus, question.machine.domain).pp
    for depth in () if "pp" in fix else sorted(set(depths.tolist()) - known):
        try:
            found = search(question, num_gpus, **{**how, "fix": {**fix, "pp": depth}}, keep=1)
        except SynclineError:  # what is fixed does not go with this depth
            continue
        if found.best:
            yield plan_of(fabric, question, found.best[0].decision, money, first.num_gpus)


def _plans(fabric: Fabric, question: PlanQuestion, found: SearchResult, money: Money | None) -> tuple[Pair, ...]:
    """Return the best candidate and the best of other splits as plans."""
    chosen: dict[tuple[Any, ...], Decision] = {}
    for candidate in found.best:
        d = candidate.decision
        chosen.setdefault((d.tp, d.pp, d.cp, d.ep, d.zero), d)
    total = question.job.gpus or question.machine.num_gpus * max(question.machine.gpu.num_dies, 1)
    pairs = [
        plan_of(fabric, question, d, money, paid_gpus(money, d.num_gpus, total, found.rents_fewer))
        for d in list(chosen.values())[:6]
    ]
    # Where hosts differ, groups laid on their links may rank otherwise than the formulas of the search.
    if any(is_laid(result.case) for _, result in pairs) and len({plan.decision.num_gpus for plan, _ in pairs}) == 1:
        pairs.sort(key=lambda pair: pair[1].step_time_s)
    return tuple(pairs)


def paid_gpus(money: Money | None, used: int, total: int, free_to_rent_fewer: bool = True) -> int:
    """Return the GPUs that are paid for: an owned cluster whole, of a rented one what is used where it may be less."""
    rented = money is not None and money.basis != "owned"
    return used if rented and free_to_rent_fewer else max(used, total)


def _counts(
    question: PlanQuestion,
    num_gpus: int,
    axes: Axes,
    fix: Mapping[str, Any],
    money: Money | None,
    first: SearchResult,
    objective: str,
) -> tuple[SearchResult, list[SizePlan]]:
    """Return the best over numbers of GPUs, and the points that it was chosen from."""
    by_count = {num_gpus: first}
    for count in gpu_counts(num_gpus, question.machine.gpus_per_host):
        if count not in by_count:
            try:
                by_count[count] = search(question, count, axes=axes, fix=fix, keep=10)
            except PlanError:
                continue
    tokens = question.job.batch.global_ * question.job.batch.sequence
    kept = {count: found.best[0] for count, found in sorted(by_count.items()) if found.best}
    points = [size_plan(n, best, tokens, money, paid_gpus(money, n, num_gpus)) for n, best in kept.items()]
    if not points:
        return first, points
    shown = front(points) if objective == "pareto" else points
    chosen = min(points, key=lambda p: p.cost_per_token_usd) if objective == "cost" else points[-1]
    merged = by_count[chosen.num_gpus]
    considered = sum(found.num_considered for found in by_count.values())
    fitting = sum(found.num_fitting for found in by_count.values())
    spent = sum(found.cpu_s for found in by_count.values())
    return replace(merged, num_considered=considered, num_fitting=fitting, cpu_s=spent, rents_fewer=True), list(shown)


def _given(question: PlanQuestion, job: Job, fabric: Fabric) -> tuple[StepResult | None, str]:
    """Return the job as its file splits it, where the file says so."""
    if not (job.parallel.model_fields_set - {"dp", "zero"}):
        return None, ""
    try:
        return step(fabric, job, question.constants), ""
    except SynclineError as error:
        return None, error.message


def _own_layout(given: StepResult, best: Plan, money: Money | None) -> Improvement:
    saving = 1 - best.predicted.step_time_s / given.step_time_s
    worth = saving * money.usd_per_year(best.num_gpus) if money else None
    return Improvement(
        "layout", "split the job as planned instead of as its file says", best.predicted.step_time_s, saving, worth,
        0.0, best.decision.label, "free", "", LIKELY["free"],
    )  # fmt: skip
