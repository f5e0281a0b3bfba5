"""One configuration by itself: the same model as the search, with everything it can say."""

from __future__ import annotations

from dataclasses import replace

from syncline.plan.block import PlanQuestion
from syncline.plan.decision import Decision
from syncline.sim.step.step import StepResult, step


def evaluate(question: PlanQuestion, decision: Decision) -> StepResult:
    """Return the whole price of one configuration."""
    machine = replace(question.machine, reach=replace(question.reach, placement=decision.placement))
    return step(machine, decision.job(question.job, machine.domain), question.constants)
