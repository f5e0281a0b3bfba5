"""The one evaluator: what a plan takes on a fabric, executed at flow level, and which of many plans is best.

    evaluator = Evaluator(fabric, question, money, num_gpus=512)
    ranked = evaluator.ranked(search(question, 512).best)
    ranked[0].plan.predicted.step_time_s, ranked[0].result

Closed forms price hundreds of thousands of configurations and shorten the list to the best of every split. What is
ranked, compared, advised and printed is executed (`sim/step/executed/`), where collectives share links. The gap between
executed and closed form is much alike for splits of one pipeline depth, so a split that is left may win if its closed
form with the least gap of its depth (`UNSEEN` where its depth has not been executed) is below the best by more than
`RESOLUTION`. Such splits are executed, the most promising first, until there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from syncline.errors import BelowBoundError, PlanError, SynclineError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.planning.block import PlanQuestion
from syncline.planning.decision import Decision
from syncline.planning.exchange import exchange_of
from syncline.planning.money import Money
from syncline.planning.plan import Plan, predicted_of
from syncline.planning.search import SearchCandidate
from syncline.sim.step.collectives import nic_rates, priced_collectives
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.account import executed_account, executed_limit
from syncline.sim.step.executed.execute import StepRun, check_executable, execute
from syncline.sim.step.machine import machine_from_fabric, reach_of
from syncline.sim.step.step import StepResult, step

RESOLUTION = 0.01
"""A plan that could win by less than this part of the step is not executed."""
UNSEEN = 0.93
"""The least part of its closed form that a split of a depth which has not been executed may take."""
MOST_GPUS = 32_768
"""A step on more is the closed form's."""


class Evaluated(NamedTuple):
    """A plan, and the priced step behind it."""

    plan: Plan
    result: StepResult


@dataclass(eq=False)
class Evaluator:
    """Plans of one question on one fabric; each decision is executed once."""

    fabric: Fabric
    question: PlanQuestion
    money: Money | None
    num_gpus: int
    """GPUs that are paid for where a plan does not say otherwise: the whole of an owned cluster."""
    rents_fewer: bool = False
    notes: list[str] = field(default_factory=list)
    _known: dict[Decision, Evaluated] = field(default_factory=dict)
    _times: dict[Decision, tuple[StepResult, StepRun | None]] = field(default_factory=dict)

    def ranked(
        self, candidates: Iterable[SearchCandidate], also: Iterable[Decision] = (), shown: int = 1,
        like: Evaluator | None = None,
    ) -> tuple[Evaluated, ...]:  # fmt: skip
        """Return the best plans, best first, at most `shown`: all that could win are executed, and so many candidates.

        `also` are decisions that won elsewhere, on a cluster that this one is compared with. `like` has executed plans
        of nearly the same question: how far each was from its closed form says what its kind may take here.
        """
        waiting = {candidate.decision: candidate.step_s for candidate in candidates}
        done: list[Decision] = []
        gaps = (
            []
            if like is None
            else [(d, run.step_time_s / result.step_time_s) for d, (result, run) in like._times.items() if run]
        )
        while waiting:
            hopes = {d: closed_s * _least_gap(d, gaps) for d, closed_s in waiting.items()}
            chosen = min(hopes, key=hopes.__getitem__)
            best_s = min(map(self.seconds, done), default=float("inf"))
            if hopes[chosen] >= (1 - RESOLUTION) * best_s and len(done) >= shown:
                break
            done.append(chosen)
            gaps.append((chosen, self.seconds(chosen) / waiting.pop(chosen)))
        # What won elsewhere is one candidate more, with this cluster's own algorithm and bucket.
        # It has no say in which of this cluster's own are executed.
        done += [won for one in also if (won := replace(one, algorithm="", bucket_bytes=0)) not in done]
        # Where some can be executed, the others have no way over the fabric.
        executed = [decision for decision in done if self._timed(decision)[1] is not None]
        best = sorted(executed or done, key=self.seconds)[:shown]
        return tuple(self.evaluated(decision) for decision in best)

    def seconds(self, decision: Decision) -> float:
        """Return how long a step of a decision takes."""
        result, run = self._timed(decision)
        return result.step_time_s if run is None else run.step_time_s

    def evaluated(self, decision: Decision) -> Evaluated:
        """Return a decision as a plan: priced on the fabric as `step` prices it, and executed."""
        if decision not in self._known:
            self._known[decision] = self._evaluated(decision)
        return self._known[decision]

    def closed(self, decision: Decision) -> StepResult:
        """Return the closed form's price of a decision."""
        q = self.question
        machine = replace(q.machine, reach=replace(q.reach, placement=decision.placement))
        return step(self.fabric, decision.job(q.job, machine.domain), q.constants, machine)

    def executed(self, result: StepResult) -> StepResult:
        """Return a priced step with the time of executing it, where it can be."""
        run = self._run(result)
        return result if run is None else replace(result, step_time_s=run.step_time_s)

    def at(self, num_gpus: int) -> Evaluator | None:
        """Return the evaluator of so many GPUs of this kind: of a larger cluster where these are not enough, or None.

        A larger cluster has more hosts of the first group and is otherwise described alike.
        """
        if num_gpus <= self.fabric.num_gpus * max(self.question.machine.gpu.num_dies, 1):
            return replace(self, num_gpus=num_gpus, _known={})  # what is paid for is another price
        try:
            fabric = _with_gpus(self.fabric, num_gpus)
            machine = machine_from_fabric(fabric)
        except SynclineError:
            return None
        question = replace(
            self.question, machine=machine, reach=reach_of(fabric, machine, self.question.reach.placement)
        )
        return Evaluator(fabric, question, self.money, num_gpus)

    def _evaluated(self, decision: Decision) -> Evaluated:
        result, run = self._timed(decision)
        way = exchange_of(result, self.question.constants)
        chosen = decision
        if way is not None:
            chosen = replace(decision, algorithm=way.algorithm, bucket_bytes=way.bucket_bytes)
        job = self.question.job
        plan = Plan(
            cluster=self.fabric.name, job=job.name, model=job.model.name, gpu=self.question.machine.gpu.name,
            num_gpus=self._paid(decision.num_gpus), tokens_per_step=job.batch.global_ * job.batch.sequence,
            decision=chosen, predicted=predicted_of(result), limit=result.limit, exchange=way,
            collectives=priced_collectives(result, chosen.bucket_bytes), links=nic_rates(result),
        )  # fmt: skip
        if run is not None:
            plan = _as_executed(plan, result, run, self.question.constants)
        if self.money is not None:
            replica = plan.decision.replica_gpus
            cost = self.money.cost(plan.predicted.step_time_s, plan.tokens_per_step, plan.num_gpus, replica)
            plan = replace(plan, cost=cost)
        return Evaluated(plan, result)

    def _timed(self, decision: Decision) -> tuple[StepResult, StepRun | None]:
        """Return the closed form's price of a decision, and its execution."""
        if decision not in self._times:
            result = self.closed(decision)
            self._times[decision] = result, self._run(result)
        return self._times[decision]

    def _run(self, result: StepResult) -> StepRun | None:
        """Return a step as executed; None, and a note, where that cannot be done for any plan of this."""
        try:
            if self.fabric.num_gpus > MOST_GPUS:
                raise PlanError(f"more than {MOST_GPUS:,} GPUs")
            check_executable(result)
            return execute(self.fabric, result, self.question.constants)
        except BelowBoundError:
            raise
        except SynclineError as error:
            note = f"not executed at flow level: {error.message}"
            self.notes += [] if note in self.notes else [note]
            return None

    def _paid(self, used: int) -> int:
        """Return the GPUs that are paid for: an owned cluster whole, of a rented one what is used if it may be less."""
        rented = self.money is not None and self.money.basis != "owned"
        return used if rented and self.rents_fewer else max(used, self.num_gpus)


def _least_gap(decision: Decision, gaps: Sequence[tuple[Decision, float]]) -> float:
    """Return the least gap between executed and closed form that a decision may have, by those of its own depth.

    Others of a depth that took longer than their closed form say nothing of this one: it may take what that says.
    """
    family = (decision.pp, decision.num_gpus, decision.placement)
    alike = [gap for other, gap in gaps if (other.pp, other.num_gpus, other.placement) == family]
    return min(1.0, *(alike or [UNSEEN, *(gap for _, gap in gaps)]))


def _as_executed(plan: Plan, result: StepResult, run: StepRun, k: Constants) -> Plan:
    """Return a plan whose time is that of executing it, with what follows from it."""
    p, executed_s = plan.predicted, run.step_time_s
    faster = p.step_time_s / executed_s
    predicted = replace(
        p, step_time_s=executed_s, tokens_per_s=p.tokens_per_s * faster, mfu=p.mfu * faster, level="flow",
        closed_form_s=p.step_time_s, interval=result.interval(executed_s),
        account=executed_account(p.account, run),
        parts_s=dict(run.parts_s),
    )  # fmt: skip
    return replace(plan, predicted=predicted, limit=executed_limit(result, run, k))


def _with_gpus(fabric: Fabric, num_gpus: int) -> Fabric:
    """Return the fabric with more hosts of its first group, all else alike."""
    spec = fabric.spec
    per_host = fabric.num_gpus // fabric.num_hosts
    if not spec.hosts or fabric.num_gpus % fabric.num_hosts or spec.hosts[0].names:
        raise PlanError("hosts differ, or are named, so there is no larger cluster of the same kind.")
    first, *rest = spec.hosts
    more = num_gpus // per_host - fabric.num_hosts
    own = fabric.num_hosts - sum(group.count for group in rest if isinstance(group.count, int))
    grown = first.model_copy(update={"count": own + more})
    return build(spec.model_copy(update={"hosts": (grown, *rest)}))
