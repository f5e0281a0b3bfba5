"""What the algorithm and the bucket of the gradient exchange buy: the choice of a plan beside what else there is.

The price of every choice is that of `sim/step/exchange.py`, so what is shown here is what fixing it would add.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import exchanged, windows_of
from syncline.sim.step.exchange import ALGORITHMS, BUCKETS, MIB, choice_s
from syncline.sim.step.step import StepResult

#: What PyTorch's DistributedDataParallel does by default.
USUAL = ("ring", 25 * MIB)


@dataclass(frozen=True)
class SyncChoice:
    """The choice, and what others would add to a step."""

    algorithm: str
    bucket_bytes: int
    saved_s: float  # against a ring with 25 MiB buckets
    extra_s: dict[str, float]  # by algorithm, each with its best bucket, against the best of all


def exchange_of(result: StepResult, k: Constants) -> SyncChoice | None:
    """Return the exchange of a priced step; None where replicas exchange nothing, or layer by layer as FSDP does."""
    case, cost, sync = result.case, result.cost, result.job.sync
    if case is None or cost is None or float(case.fsdp) or float(case.dp * case.cp) == 1:
        return None
    if sync.method == "parameter-server":
        return None
    buffers, windows = exchanged(case), windows_of(case, cost.hiding)
    times = float(case.num_micro if case.scatter_each else 1.0) / float(case.sync_every)

    sizes = list(dict.fromkeys((*BUCKETS, USUAL[1], sync.bucket or BUCKETS[0])))
    prices: dict[tuple[str, int], float] = {}
    for algorithm in ALGORITHMS:
        row = times * choice_s(case, k, algorithm, np.array(sizes, np.float64), buffers, windows)
        prices |= {(algorithm, size): price for size, price in zip(sizes, row.tolist(), strict=True)}
    algorithms = [sync.algorithm] if sync.algorithm else list(ALGORITHMS)
    buckets = [sync.bucket] if sync.bucket else list(BUCKETS)
    best = min((prices[a, b], rank, b, a) for rank, a in enumerate(algorithms) for b in buckets)
    by = {a: min(prices[a, b] for b in BUCKETS) for a in ALGORITHMS}
    least = min(by.values())
    extra = {a: value - least for a, value in by.items() if np.isfinite(value)}
    return SyncChoice(best[3], best[2], prices[USUAL] - best[0], extra)
