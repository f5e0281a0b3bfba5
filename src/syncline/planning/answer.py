"""The answer of `syncline plan`: the best plan for a job on a cluster, what limits it, and what to change first.

answer = make_plan(load("h100-64-rail"), named_job("llama3-70b"))
answer.best.predicted.step_time_s, answer.actions[0].words
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
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
from syncline.planning.cost.recovery import Recovery, RecoveryReport
from syncline.planning.decide.prospects import Prospects, RunReport, prospects, run_option
from syncline.planning.decision import Decision, Split
from syncline.planning.evaluate import RESOLUTION, Evaluator
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.money import Money, money_of
from syncline.planning.named_job import assumed_batch
from syncline.planning.plan import BestPlan, Plan, PlanCost
from syncline.planning.prune import nothing_fits
from syncline.planning.search import KEEP, SearchCandidate, SearchResult, SearchTask, search
from syncline.planning.sensitivity import LIKELY, Improvement, actions_of, worthwhile
from syncline.planning.sizes import SizePlan, front, gpu_counts, size_plan
from syncline.planning.space import OFFLOADS, USUAL, Axes
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.limit import Limit
from syncline.sim.step.machine import machine_from_fabric, reach_of
from syncline.sim.step.step import IGNORES, StepResult, step
from syncline.sim.uncertainty import Interval
from syncline.workload.job import Job
from syncline.workload.software import Assumed

OBJECTIVES = ("time", "cost", "pareto")
INTERRUPTED = "interrupted: the best of what was looked at"
SHOWN = 3
"""Plans that are printed, and so are executed whether or not they could win."""
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
    evaluator: Evaluator
    run: Prospects | None = None  # what the job is for, where it says so
    network_bound: float | None = None  # part of the time that a network without limits would save
    assumed: tuple[str, ...] = ()  # what the cluster's file does not say
    faults: str = ""  # what it says is broken

    @property
    def question(self) -> PlanQuestion:
        return self.evaluator.question

    def among(self, decisions: Collection[Decision]) -> PlanResult:
        """Return the answer with further decisions as candidates: those that won on clusters it is compared with."""
        known = [d for d in decisions if d != self.best.decision and d.num_gpus <= self.best.num_gpus]
        most = (1 - self.question.headroom) * self.best.predicted.memory_available_bytes
        fits = [d for d in known if self.evaluator.closed(d).memory_bytes["total"] <= most]
        won = self.evaluator.ranked((), [self.best.decision, *fits])[0]
        if won.plan.predicted.step_time_s >= (1 - RESOLUTION) * self.best.predicted.step_time_s:
            return self
        return replace(self, best=won.plan, result=won.result, others=(self.best, *self.others))

    @property
    def recovery(self) -> Recovery | None:
        """How the job saves its state and comes back; None where nothing is priced."""
        p, money = self.best, self.money
        return money.recovery(p.predicted.step_time_s, p.num_gpus, p.decision.replica_gpus) if money else None

    @property
    def worthwhile(self) -> tuple[Improvement, ...]:
        """What is worth doing and was tried, most money after price and risk first; nothing the model cannot tell."""
        seen = (action for action in worthwhile(self.actions, self.money) if action.tried)
        return tuple(action for action in seen if action.saving > self.tie_within)

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
        p, given = self.best, self.given
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
            recovery=self.recovery.report() if self.recovery else None,
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
    """Part of the time that a network between hosts without limits would save, split anew."""
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
    pair = result.calibrated_spread("model")
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
    also: Sequence[Decision] = (),
) -> PlanResult:
    """Return the best plan for a job on a fabric, with alternatives, sensitivities and prices.

    What is ranked and printed is executed at flow level (`planning/evaluate.py`). `also` are decisions that won on
    clusters that this one is compared with.
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
    looked = _candidates(question, num_gpus, how, job)
    if spares and _memory_decides(looked, fix, axes):
        looked = looked.then(_candidates(question, num_gpus, how | {"axes": replace(axes, offload=spares)}, job))
    if not looked.best and looked.complete:  # nothing is likely to fit: what may, and says how likely that is
        question = replace(question, headroom=0.0, least_chance=0.5)
        looked = _candidates(question, num_gpus, how, job)
    if not looked.best and objective == "time":
        raise nothing_fits(question, looked, num_gpus, axes, bool(fix))
    evaluator = Evaluator(fabric, question, money, num_gpus)
    points: list[SizePlan] = []
    if objective != "time":
        evaluator.rents_fewer = True
        looked, points = _counts(evaluator, num_gpus, axes, fix, looked, objective)
        if not looked.best:
            raise nothing_fits(question, looked, num_gpus, axes, bool(fix))
    ranked = evaluator.ranked(looked.best, [d for d in also if d.num_gpus <= num_gpus], SHOWN)
    plans, result = tuple(plan for plan, _ in ranked), ranked[0].result
    order = _order_note(evaluator, plans[0], looked.best)
    question = replace(question, reach=replace(question.reach, placement=plans[0].decision.placement))
    evaluator.question = question
    given, problem = _given(evaluator, job)
    best = plans[0]
    actions: tuple[Improvement, ...] = ()
    bound: float | None = None
    run: Prospects | None = None
    meter: Meter = how["meter"]
    try:
        if with_actions:
            actions, bound = actions_of(evaluator, best, axes, fix, meter)
        if money is not None and job.tokens and with_run:
            run = prospects(evaluator, best, money, axes, _tie_within(result), actions, meter)
    except KeyboardInterrupt:
        looked = replace(looked, complete=False)
    if given is not None and given.step_time_s > 1.01 * best.predicted.step_time_s and given.fits:
        actions = (_own_layout(given, best, money), *actions)
    taken = (*filter(None, [assumed_batch(job)]), *assumed_of(fabric.spec))
    began = run.now.forecast.goal.began(today()) if run is not None else ""
    return PlanResult(
        best=best, result=result, others=plans[1:], actions=tuple(sorted(actions, key=lambda a: -a.saving)),
        found=looked, objective=objective, given=given, given_problem=problem, points=tuple(points), money=money,
        notes=tuple(filter(None, (note, stated, order, *evaluator.notes, began, INTERRUPTED * (not looked.complete)))),
        evaluator=evaluator, run=run, network_bound=bound, assumed=taken,
        faults=fault_words(fabric, fabric.spec.faults),
    )  # fmt: skip


def _memory_decides(looked: SearchResult, fix: Mapping[str, Any], axes: Axes) -> bool:
    """Say whether to try offloading to the host as well: nothing fits without it, and nobody asked for it anyway."""
    return not looked.best and looked.complete and "offload" not in fix and axes.offload == ("none",)


def _candidates(question: PlanQuestion, num_gpus: int, how: Mapping[str, Any], job: Job) -> SearchResult:
    """Return the best of every split: on all GPUs, and inside one site, pod or rack where lines out of it are thin."""
    looked = SearchResult()
    for count in (num_gpus, *(() if job.gpus is not None else (n for n, _ in question.reach.parts(num_gpus)))):
        placements = (question.reach.placement,) if "placement" in how["fix"] else question.reach.placements(count)
        for placement in placements:
            asked = replace(question, reach=replace(question.reach, placement=placement))
            try:
                looked = looked.then(search(asked, count, keep=KEEP, **how))
            except SynclineError:
                if count == num_gpus:
                    raise
                continue  # what is fixed does not divide there
            if not looked.complete:
                return looked
    return looked


def _order_note(evaluator: Evaluator, best: Plan, candidates: Sequence[SearchCandidate]) -> str:
    """Say why the best plan is not packed, or leaves GPUs of a cluster with thin lines idle."""
    d, reach, num_gpus = best.decision, evaluator.question.reach, evaluator.num_gpus
    names = dict(reach.parts(num_gpus))
    part = next((name for count, name in sorted(names.items()) if d.num_gpus <= count), "")
    found = []
    if part:
        words = f"{part} alone, {d.num_gpus:,} of {num_gpus:,} GPUs"
        whole = next((c.decision for c in candidates if c.decision.num_gpus > max(names)), None)
        if whole is not None:
            words += f", is faster than all of them ({units.show_time(evaluator.seconds(whole))})"
        found.append(words)
    usual = next((c.decision for c in candidates if c.decision.placement == reach.placement), None)
    if d.placement != reach.placement and usual is not None:
        saved = 1 - best.predicted.step_time_s / evaluator.seconds(usual)
        found.append(f"ranks placed as {d.placement} save {saved:.1%} of the step against {reach.placement}")
    return "; ".join(found)


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


def _counts(
    evaluator: Evaluator, num_gpus: int, axes: Axes, fix: Mapping[str, Any], first: SearchResult, objective: str
) -> tuple[SearchResult, list[SizePlan]]:
    """Return the best over numbers of GPUs, and the points that it was chosen from."""
    question, by_count = evaluator.question, {num_gpus: first}
    for count in gpu_counts(num_gpus, question.machine.gpus_per_host):
        if count not in by_count:
            with suppress(PlanError):
                by_count[count] = search(question, count, axes=axes, fix=fix, keep=KEEP)
    kept = {n: size_plan(evaluator.ranked(by_count[n].best)[0].plan, n) for n in sorted(by_count) if by_count[n].best}
    if not kept:
        return first, []
    points = list(kept.values())
    shown = front(points) if objective == "pareto" else points
    chosen = min(points, key=lambda p: p.cost_per_token_usd) if objective == "cost" else points[-1]
    merged = by_count[chosen.num_gpus]
    considered = sum(found.num_considered for found in by_count.values())
    fitting = sum(found.num_fitting for found in by_count.values())
    spent = sum(found.cpu_s for found in by_count.values())
    return replace(merged, num_considered=considered, num_fitting=fitting, cpu_s=spent), list(shown)


def _given(evaluator: Evaluator, job: Job) -> tuple[StepResult | None, str]:
    """Return the job as its file splits it, executed, where the file says so."""
    if not (job.parallel.model_fields_set - {"dp", "zero"}):
        return None, ""
    try:
        return evaluator.executed(step(evaluator.fabric, job, evaluator.question.constants)), ""
    except SynclineError as error:
        return None, error.message


def _own_layout(given: StepResult, best: Plan, money: Money | None) -> Improvement:
    saving = 1 - best.predicted.step_time_s / given.step_time_s
    worth = saving * money.usd_per_year(best.num_gpus) if money else None
    return Improvement(
        "layout", "split the job as planned instead of as its file says", best.predicted.step_time_s, saving, worth,
        0.0, best.decision.label, "free", "", LIKELY["free"], tried=True,
    )  # fmt: skip
