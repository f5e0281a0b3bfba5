"""What limits a step: the largest part of its time, in words, and what would move it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe import units
from syncline.sim.step.case import Case
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine

_WORDS = {
    "compute": ("arithmetic", "a faster GPU, lower precision or less recomputation"),
    "tp": ("tensor-parallel exchange", "a smaller tp, or overlap of tensor-parallel communication"),
    "cp": ("context-parallel exchange", "a smaller cp"),
    "ep": ("expert all-to-all", "experts inside one scale-up domain, or fewer ranks per expert group"),
    "host": ("the host (routing tokens, offloaded activations)", "CUDA graphs, larger micro-batches or token dropping"),
    "fsdp": ("gathering parameters", "a larger micro-batch, HSDP inside a domain, or a faster network"),
    "dp": ("the gradient exchange", "gradient accumulation, overlap, compression or a faster network"),
    "p2p": ("activations between stages", "fewer chunks per rank"),
    "bubble": ("the pipeline bubble", "more micro-batches, interleaving or fewer stages"),
    "optimizer": ("the optimizer", "sharding its state"),
    "fixed": ("fixed time per step", "a larger batch"),
    "codec": ("encoding gradients", "a cheaper codec"),
    "storage": ("storage", "a faster storage network, or asynchronous checkpoints"),
}
#: What leaves a cell of the fabric: its words, and the columns of a case that hold its rate and its latency.
_CELLS = {
    "site": ("the line between sites, {}", {"site_Bps": np.inf, "site_s": 0.0}),
    "pod": ("the links out of a pod, {} together", {"pod_Bps": np.inf}),
    "rack": ("the links out of a rack, {} together", {"rack_Bps": np.inf}),
}
_LEAST_FALL = 0.25
"""Share of a part's time that must go with a cell's limit before that cell is named."""


@dataclass(frozen=True)
class Limit:
    """What limits a step, and what would move it."""

    what: str
    """The part of the step's time, or "memory" where the job does not fit."""
    words: str
    share: float
    link: str | None
    """The links on which that part is spent; None where it is no communication."""
    then: str
    """The next largest part."""
    then_words: str
    then_share: float
    then_link: str | None
    advice: str


def limit_of(
    parts: Mapping[str, float],
    total: float,
    machine: Machine,
    case: Case | None,
    fits: bool,
    k: Constants | None = None,
) -> Limit:
    """Return what limits a step: memory if it does not fit, or else the largest part beside useful arithmetic."""
    name, beside = sorted(parts, key=lambda part: parts[part], reverse=True)[:2]
    # Advice is about what can be moved: the largest part that is not arithmetic.
    moved = beside if name == "compute" else name
    limit = Limit(
        what=name,
        words=_WORDS[name][0],
        share=parts[name] / total,
        link=_link(name, machine, case, k),
        then=beside,
        then_words=_WORDS[beside][0],
        then_share=parts[beside] / total,
        then_link=_link(beside, machine, case, k),
        advice=_WORDS[moved][1],
    )
    if fits:
        return limit
    advice = "shard more (zero, tp, pp) or recompute"
    return replace(limit, what="memory", words="memory: the job does not fit", advice=advice)


def _link(part: str, machine: Machine, case: Case | None, k: Constants | None) -> str | None:
    """Return which link a part of the time is spent on."""
    if part not in ("tp", "cp", "ep", "fsdp", "dp", "p2p"):
        return None
    nic = f"network, {units.show_rate(machine.nic_Bps)} a GPU"
    up = f"scale-up, {units.show_bandwidth(machine.nvlink_Bps)} a GPU"
    if case is None:
        return nic
    sizes = {"tp": case.tp, "cp": case.tp * case.cp, "ep": case.ep, "fsdp": case.tp * case.shard_ranks,
             "dp": case.tp * case.cp * case.dp, "p2p": case.tp * case.cp * case.dp * case.pp}  # fmt: skip
    if float(sizes[part]) <= machine.domain:
        return up
    return (_cell(part, case, k) if k is not None else None) or nic


def _cell(part: str, case: Case, k: Constants) -> str | None:
    """Return what leaves the site, pod or rack without whose limit the part would be shortest; None: the ports."""
    whole, shortest, found = float(getattr(step_cost(case, k), part)), 1 - _LEAST_FALL, None
    for name, (words, free) in _CELLS.items():
        rate = float(getattr(case, f"{name}_Bps"))
        if not np.isfinite(rate) or whole <= 0:
            continue
        freed = step_cost(replace(case, **{column: np.asarray(value) for column, value in free.items()}), k)
        if float(getattr(freed, part)) / whole < shortest:
            shortest, found = float(getattr(freed, part)) / whole, words.format(units.show_rate(rate))
    return found
