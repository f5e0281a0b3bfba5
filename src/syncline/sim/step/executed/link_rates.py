"""What every link of the network carries over a step, by the pattern of its name: `leaf-* -> spine-*`.

Links of one pattern are used alike but for hash collisions, which are left out: each is given their mean. Links that
the step leaves idle are there with zero, so that whatever they carry later is seen to be somebody else's.
"""

from __future__ import annotations

import re

import numpy as np

from syncline.errors import SynclineError
from syncline.fabric.fabric import Fabric, Tier
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.executed.execute import check_executable
from syncline.sim.step.executed.stages import Stages
from syncline.sim.step.executed.tasks import StepTasks
from syncline.sim.step.step import StepResult
from syncline.workload.step_graph import step_graph

MOST_LINKS = 200_000
MOST_MICRO = 96


def link_rates(fabric: Fabric, result: StepResult, constants: Constants | None = None) -> dict[str, float]:
    """Return the mean rate in bytes a second of the links of each pattern; {} where the step cannot be executed."""
    if len(fabric.links) > MOST_LINKS or result.job.num_micro > MOST_MICRO:
        return {}
    k = constants or default_constants()
    try:
        check_executable(result)
        stages = Stages(fabric, result, k, "ecmp")
        built = StepTasks(stages, result, k, step_graph(result.job, max_micro=result.job.num_micro))
        table = built.footprints()
    except SynclineError:
        return {}
    sent = np.zeros(len(table))
    for number, what in enumerate(built.traffic.values()):
        sent[what.path] += built.columns.share[built.columns.what == number].sum() * what.sent_bytes
    carried = sent @ table if len(table) else np.zeros(len(fabric.links))
    network = np.flatnonzero(fabric.links.tier >= Tier.ACCESS)
    by_pattern: dict[str, list[float]] = {}
    for link in network.tolist():
        by_pattern.setdefault(pattern_of(fabric.link_name(link)), []).append(float(carried[link]))
    return {name: float(np.mean(sizes)) / result.step_time_s for name, sizes in by_pattern.items()}


def pattern_of(name: str) -> str:
    """Return a link's name with its numbers left open: `host-03/nic-1 -> leaf-07` is `host-*/nic-* -> leaf-*`."""
    return re.sub(r"\d+", "*", name)
