"""The plan: a decision with what it is predicted to do and cost. It can be saved to a file.

plan.decision.tp, plan.predicted.step_time_s, plan.cost.cost_per_token_usd
save_plan(plan, "plan.json")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from syncline.describe.files import write_text
from syncline.planning.decision import Decision, Split
from syncline.planning.exchange import SyncChoice
from syncline.sim.step.collectives import PricedCollective
from syncline.sim.step.limit import Limit
from syncline.sim.step.step import StepResult
from syncline.sim.uncertainty import Interval
from syncline.timeline.account import Account, StepCause

FORMAT = "syncline plan 1"


@dataclass(frozen=True)
class PlanPrediction:
    """What the step model says of a decision. Times in seconds, bytes on the fullest GPU."""

    step_time_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    account: Account
    parts_s: Mapping[str, float]
    memory_by: Mapping[str, float]
    comm_bytes: Mapping[str, Mapping[str, float]]
    memory_available_bytes: float
    interval: Interval  # of the step time
    memory_interval: Interval
    fit_chance: float  # how likely the fullest GPU's memory suffices
    warnings: tuple[str, ...]
    level: str = "analytic"  # what the step time is: executed at flow level, or the closed form's
    closed_form_s: float | None = None  # the closed form's time, where the plan was executed
    bound_s: float = 0.0  # no run of this plan on its fabric can beat it

    @property
    def exposed_comm_s(self) -> float:
        """Communication that nothing hides."""
        return self.account.seconds(StepCause.NETWORK)


@dataclass(frozen=True)
class PlanCost:
    """What a decision costs at one price of a GPU-hour; failures are counted in tokens, not in a step."""

    basis: str
    usd_per_gpu_hour: float
    num_gpus: int
    goodput: float
    usd_per_step: float
    cost_per_token_usd: float

    @property
    def usd_per_million_tokens(self) -> float:
        return self.cost_per_token_usd * 1e6


@dataclass(frozen=True)
class Plan:
    """One decision for one job on one cluster."""

    cluster: str
    job: str
    model: str
    gpu: str
    num_gpus: int
    tokens_per_step: int
    decision: Decision
    predicted: PlanPrediction
    limit: Limit
    cost: PlanCost | None = None
    collectives: tuple[PricedCollective, ...] = ()  # of one step
    links: Mapping[str, float] = field(default_factory=dict)  # mean rate by the pattern of their names, bytes/s
    exchange: SyncChoice | None = None  # what the choice of algorithm and bucket buys; None: nothing to choose

    def best(self) -> BestPlan:
        """Return the figures that `syncline plan --json` gives as `best`."""
        p, c, d = self.predicted, self.cost, self.decision
        return BestPlan(
            step_time_s=p.step_time_s,
            level=p.level,
            closed_form_step_time_s=p.closed_form_s,
            bound_s=p.bound_s,
            tokens_per_s=p.tokens_per_s,
            mfu=p.mfu,
            interval=p.interval,
            memory_bytes=p.memory_bytes,
            memory_interval=p.memory_interval,
            fit_chance=p.fit_chance,
            parallel=d.parallel(),
            account=p.account,
            exposed_comm_s=p.exposed_comm_s,
            cost_per_token_usd=c.cost_per_token_usd if c else None,
            gpus_used=d.num_gpus,
            placement=d.placement,
            algorithm=d.algorithm,
            bucket_bytes=d.bucket_bytes,
            exchange=self.exchange,
            parts_s=p.parts_s,
            memory_by=p.memory_by,
            memory_available_bytes=p.memory_available_bytes,
            comm_bytes=p.comm_bytes,
            usd_per_step=c.usd_per_step if c else None,
            warnings=p.warnings,
        )


@dataclass(frozen=True)
class BestPlan:
    """The figures of the best plan: its fields are the JSON."""

    step_time_s: float
    level: str
    """How the step time was found: executed at flow level ("flow"), or by closed forms ("analytic")."""
    closed_form_step_time_s: float | None
    bound_s: float
    tokens_per_s: float
    mfu: float
    interval: Interval
    memory_bytes: float
    memory_interval: Interval
    fit_chance: float
    """How likely the fullest GPU's memory suffices."""
    parallel: Split
    account: Account
    """Where the step goes, and what networks without limits, in hosts and between them, would save with this split."""
    exposed_comm_s: float
    cost_per_token_usd: float | None
    gpus_used: int
    placement: str
    algorithm: str
    bucket_bytes: int
    exchange: SyncChoice | None
    """What the choice of algorithm and bucket buys; None: nothing to choose."""
    parts_s: Mapping[str, float]
    memory_by: Mapping[str, float]
    memory_available_bytes: float
    comm_bytes: Mapping[str, Mapping[str, float]]
    usd_per_step: float | None
    warnings: tuple[str, ...]


def predicted_of(result: StepResult) -> PlanPrediction:
    """Return the summary of a priced step."""
    parts = {name: value for name, value in result.memory_bytes.items() if name != "total"}
    return PlanPrediction(
        step_time_s=result.step_time_s,
        tokens_per_s=result.tokens_per_s,
        mfu=result.mfu,
        memory_bytes=result.memory_bytes["total"],
        account=result.account,
        parts_s=dict(result.parts_s),
        memory_by=parts,
        comm_bytes=result.comm_bytes,
        memory_available_bytes=float(result.case.memory_bytes) if result.case else 0.0,
        interval=result.interval(),
        memory_interval=result.memory_interval,
        fit_chance=result.fit_chance,
        warnings=tuple(result.warnings),
        bound_s=result.floor_s,
    )


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan; the old file stays whole until the new one is complete."""
    data = {"format": FORMAT, **asdict(plan)}
    data["predicted"]["exposed_comm_s"] = plan.predicted.exposed_comm_s  # `watch --expect` reads it
    write_text(Path(path), json.dumps(data, indent=2, allow_nan=False) + "\n")
