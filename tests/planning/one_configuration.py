"""The closed form's price of one configuration, which the search in columns must repeat."""

from __future__ import annotations

from dataclasses import replace

from syncline.planning.block import PlanQuestion
from syncline.planning.decision import Decision
from syncline.sim.step.step import StepResult, step


def evaluate(question: PlanQuestion, decision: Decision) -> StepResult:
    """Return the closed form's price of one configuration by itself, of no fabric in particular."""
    machine = replace(question.machine, reach=replace(question.reach, placement=decision.placement))
    return step(machine, decision.job(question.job, machine.domain), question.constants)
