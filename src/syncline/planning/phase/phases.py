"""A run of several phases on one cluster: every phase planned for itself, then one calendar and one bill.

    found = plan_run(load("cluster.yaml"), load_run("job.yaml"))
    found.days, found.usd, found.phases[0].network_share

What makes one phase slower than predicted (the model's error, failures, prices) does so to all: their intervals add up
end to end, which is the widest that the total can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta

from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, metered
from syncline.describe.today import today
from syncline.errors import PlanError, SynclineError
from syncline.fabric.assumed import assumed_of
from syncline.fabric.fabric import Fabric
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.decide.forecast import Ends, Forecast
from syncline.planning.decide.prospects import run_option
from syncline.planning.phase.reinforce import ReinforcementStep, reinforced
from syncline.workload.phases import Phase, TrainingRun

#: Where the quantiles of a forecast stand: 5, 25, 50, 75 and 95 %.
_AT = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class PlannedPhase:
    """One phase with its plan and its part of the bill."""

    phase: Phase
    plan: PlanResult  # of what trains
    step_s: float
    num_gpus: int
    forecast: Forecast | None  # None where nothing is priced
    reinforced: ReinforcementStep | None = None

    @property
    def days(self) -> float:
        work = self.phase.steps * self.step_s / 86400
        return work if self.forecast is None else self.forecast.days

    @property
    def network_share(self) -> float:
        """The part of a step in which the network is waited for: exposed exchanges, and weights on their way."""
        waits = self.plan.best.predicted.exposed_comm_s
        if self.reinforced is not None:
            hidden = 0.0 if self.reinforced.shared or self.reinforced.train_s >= self.reinforced.rollout_s else 1.0
            waits = waits * (1 - hidden) + self.reinforced.weights_s
        return waits / self.step_s

    @property
    def nic_bytes_per_step(self) -> float:
        """What one GPU sends over the network in a step, with the weights that arrive for the rollout."""
        sent = sum(where.get("network", 0.0) for where in self.plan.best.predicted.comm_bytes.values())
        return sent + (self.reinforced.weights_bytes if self.reinforced else 0.0)

    @property
    def label(self) -> str:
        split = self.plan.best.decision.label
        return f"{split}; {self.reinforced.label}" if self.reinforced else split

    def to_json(self) -> JsonObject:
        """Return the phase as plain data."""
        f, limit = self.forecast, self.plan.best.limit
        return {
            "name": self.phase.name, "tokens": self.phase.job.tokens, "steps": self.phase.steps, "gpus": self.num_gpus,
            "split": self.plan.best.decision.label, "step_time_s": self.step_s, "limit": asdict(limit),
            "network_share": self.network_share, "network_bytes_per_gpu": self.nic_bytes_per_step,
            "days": self.days, "days_90": None if f is None else list(f.days_90),
            "usd": None if f is None else f.usd, "usd_90": None if f is None else list(f.usd_90),
            "goodput": None if f is None else f.goodput,
            "rollout": None if self.reinforced is None else self.reinforced.to_json(),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """The run: its phases, its end and its bill."""

    cluster: str
    gpu: str
    run: TrainingRun
    phases: tuple[PlannedPhase, ...]
    note: str
    assumed: tuple[str, ...]  # what the cluster's file does not say

    @property
    def days(self) -> float:
        return sum(phase.days for phase in self.phases)

    @property
    def usd(self) -> float | None:
        found = [phase.forecast.usd for phase in self.phases if phase.forecast]
        return sum(found) if len(found) == len(self.phases) else None

    @property
    def days_90(self) -> Ends | None:
        return self._both("days_90")

    @property
    def usd_90(self) -> Ends | None:
        return self._both("usd_90")

    def _both(self, name: str) -> Ends | None:
        found = [getattr(phase.forecast, name) for phase in self.phases if phase.forecast]
        return (sum(f[0] for f in found), sum(f[1] for f in found)) if len(found) == len(self.phases) else None

    @property
    def starts(self) -> tuple[date | None, ...]:
        """The first day of every phase, and the last of the run."""
        goal, days, out = self.run.goal, 0.0, []
        for phase in self.phases:
            out.append(None if goal.first_day is None else goal.first_day + timedelta(days=math.floor(days + 1e-9)))
            days += phase.days
        return (*out, goal.day_after(days))

    @property
    def chance_deadline(self) -> float | None:
        allowed = self.run.goal.days_allowed
        return None if allowed is None or self.days_90 is None else self._chance("days", allowed)

    @property
    def chance_budget(self) -> float | None:
        budget = self.run.goal.budget
        return None if budget is None or self.usd_90 is None else self._chance("usd", budget)

    def _chance(self, what: str, limit: float) -> float:
        """Return how likely the total is below a limit, all phases at the same quantile."""
        totals = [0.0] * len(_AT)
        for phase in self.phases:
            f = phase.forecast
            assert f is not None
            (low, high), (near, far) = getattr(f, f"{what}_90"), getattr(f, f"{what}_50")
            for place, value in enumerate((low, near, getattr(f, what), far, high)):
                totals[place] += value
        return _between(totals, limit)

    def to_json(self) -> JsonObject:
        """Return the object that `syncline plan --json` prints for a job with phases."""
        starts = [None if day is None else day.isoformat() for day in self.starts]
        phases = [phase.to_json() | {"start": day} for phase, day in zip(self.phases, starts, strict=False)]
        return {
            "kind": "phases", "cluster": self.cluster, "gpu": self.gpu, "run": self.run.name, "phases": phases,
            "days": self.days, "days_90": None if self.days_90 is None else list(self.days_90),
            "usd": self.usd, "usd_90": None if self.usd_90 is None else list(self.usd_90), "start": starts[0],
            "end": starts[-1], "deadline_days": self.run.goal.days_allowed, "budget_usd": self.run.goal.budget,
            "chance_deadline": self.chance_deadline, "chance_budget": self.chance_budget, "note": self.note,
            "assumed_of_cluster": list(self.assumed),
        }  # fmt: skip


def plan_run(
    fabric: Fabric, run: TrainingRun, assumptions: Assumptions | None = None, prices: Prices | None = None,
    meter: Meter | None = None,
) -> PlannedRun:  # fmt: skip
    """Plan every phase of a run."""
    found = tuple(_planned(fabric, phase, assumptions, prices) for phase in metered(run.phases, meter))
    notes = dict.fromkeys(note for phase in found for note in phase.plan.notes if note.startswith("not priced"))
    gpu = found[0].plan.question.machine.gpu.name
    return PlannedRun(
        fabric.name,
        gpu,
        run,
        found,
        "; ".join(filter(None, (*notes, run.goal.began(today())))),
        assumed_of(fabric.spec),
    )


def _planned(fabric: Fabric, phase: Phase, assumptions: Assumptions | None, prices: Prices | None) -> PlannedPhase:
    try:
        way = reinforced(fabric, phase, assumptions, prices) if phase.rollout else None
        plan = way.trained if way else make_plan(
            fabric, phase.job, assumptions=assumptions, prices=prices, with_actions=False, with_run=False
        )  # fmt: skip
    except SynclineError as error:
        raise PlanError(f"{phase.name}: {error.message}", detail=error.detail, hint=error.hint) from None
    step_s = way.step_s if way else plan.best.predicted.step_time_s
    gpus = way.num_gpus if way else plan.best.num_gpus
    if plan.money is None:
        return PlannedPhase(phase, plan, step_s, gpus, None, way)
    best = replace(plan.best, num_gpus=gpus, predicted=replace(plan.best.predicted, step_time_s=step_s))
    option = run_option(plan.question, best, plan.money)
    return PlannedPhase(phase, plan, step_s, gpus, option.forecast, way)


def _between(totals: Sequence[float], limit: float) -> float:
    """Return at which quantile a limit stands, straight lines between those that are known."""
    if limit < totals[0] or limit > totals[-1]:
        return 0.02 if limit < totals[0] else 0.98
    for place in range(len(totals) - 1):
        low, high = totals[place], totals[place + 1]
        if low <= limit <= high:
            part = (limit - low) / (high - low) if high > low else 1.0
            return _AT[place] + part * (_AT[place + 1] - _AT[place])
    return 0.5
