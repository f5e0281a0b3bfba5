"""The price of one training (or decode) step on a fabric.

result = step(load("h100-64-rail"), load_job("job.yaml"))
"""

from __future__ import annotations

from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.cost import StepCost, step_cost
from syncline.sim.step.decode import DecodeResult, decode_step
from syncline.sim.step.machine import Machine, machine_from_fabric, machine_from_spec
from syncline.sim.step.memory import Memory, memory
from syncline.sim.step.step import StepResult, step

__all__ = [
    "Case",
    "Constants",
    "DecodeResult",
    "Machine",
    "Memory",
    "StepCost",
    "StepResult",
    "build_case",
    "decode_step",
    "default_constants",
    "machine_from_fabric",
    "machine_from_spec",
    "memory",
    "stack",
    "step",
    "step_cost",
]
