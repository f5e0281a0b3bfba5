"""The groups of one job laid on the links of its fabric, where closed forms would take the worst of everything at once.

Formulas in columns (`network.py`) know one port and one number of members of a group in a domain. That is exact where
hosts are alike and groups fill whole domains. With a slow cable here and a short host there it is their product,
although no ring has both. Then the job's own groups are laid on the routes (`executed/footprint.py`), as its execution
does, and the busiest link says what each kind of exchange gets: `laid_*` of the case.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from syncline.fabric.fabric import Fabric
from syncline.sim.flow.detours import dragonfly_routing
from syncline.sim.reach import fabric_reach
from syncline.sim.step.case import Case, Floats
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.stages import PlacedJob, Stages

MOST_GPUS = 32_768
"""Beyond, formulas stay: one fault of many thousand ports is the worst of everything at once."""
_ALIKE = 1e-9


def laid_case(fabric: Fabric, placed: PlacedJob, k: Constants) -> Case:
    """Return the case of a placed job, with what its groups get of the links where hosts or groups differ."""
    case = placed.case
    assert case is not None
    if fabric.num_gpus > MOST_GPUS or fabric.num_hosts < 2 or not differs(fabric, case):
        return case
    stages, pp = Stages(fabric, placed, k), range(placed.job.parallel.pp)
    laid = {name: stages.ring_Bps(kind, *pp) for name, kind in _kinds(case).items()} | {"send": _sent_Bps(stages)}
    return replace(case, **{f"laid_{name}_Bps": rate for name, rate in laid.items()})


def differs(fabric: Fabric, case: Case) -> bool:
    """Return whether the cells of a fabric differ, or a stage of the job ends inside a scale-up domain.

    Those of a dragonfly do: what leaves a switch depends on who sends to whom.
    """
    if not fabric.links.up.all() or dragonfly_routing(fabric) is not None:
        return True
    ports = np.inf  # what a GPU's ports have: a cell that lets out more limits nobody
    for cells in fabric_reach(fabric).cells:
        each = np.minimum(cells.even_Bps / np.maximum(cells.gpus, 1), ports)
        ports = min(ports, float(each.max(initial=0.0)))
        if np.ptp(each) > _ALIKE * each.max(initial=0.0):
            return True
    stage, domain = float(case.tp * case.cp * case.dp), float(case.domain)
    total = stage * float(case.pp)
    return total > domain and bool(total % domain or (stage % domain and domain % stage))


def _kinds(case: Case) -> dict[str, str]:
    """Return the kinds of traffic that all stages of a case have at once, by the name of their column."""
    replicas = case.dp * case.cp
    shard = case.shard_ranks if case.fsdp else replicas
    holders = replicas * case.tp / case.ep
    found = {  # groups that share a domain meet no network
        "tensor": (case.domain % case.tp > 0, "tensor"),
        "expert": ((case.experts > 0) & (case.domain % case.ep > 0) & (holders % 1 == 0), "expert"),
        "data": (shard > 1, "data"),
        "holders": ((case.experts > 0) & (holders > 1) & (holders % 1 == 0), "data (experts)"),
        "replicas": (shard < replicas, "data (replicas)"),
    }
    return {name: kind for name, (has, kind) in found.items() if bool(has)}


def _sent_Bps(stages: Stages) -> Floats:
    """Return the rate from a stage to its neighbour, the slowest pair; 0 without a pipeline.

    Lines between sites have a rule of their own (`network.stage_line_Bps`).
    """
    split = stages.job.parallel
    if split.pp < 2 or np.isfinite(stages.result.machine.reach.site_gpus):
        return np.zeros(())
    kinds = ("send forward", "send backward")
    rates = [stages.ring_Bps(kind, stage) for kind in kinds for stage in stages.senders(kind)]
    return np.asarray(min((rate for rate in rates if rate > 0), default=0.0))
