"""How gradients are exchanged: the algorithm and the bucket that suit the chosen split.

Closed forms only: a ring of n ranks takes 2 (n-1) rounds, a tree 2 log2 n at less of the rate, a hierarchy one ring
inside the domain and one between domains. The step model prices the exchange at the rate of the best, so this choice
completes a decision without changing its predicted time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.plan.decision import Decision
from syncline.sim.step.constants import Constants
from syncline.sim.step.machine import Machine

MIB = 2**20
BUCKETS = tuple(size * MIB for size in (4, 8, 16, 25, 32, 50, 64, 100, 128, 256, 512, 1024))
#: Rate of a double binary tree over that of a ring, large messages (NCCL's own model: 0.92 of the ring's).
TREE_RATE = 0.92


@dataclass(frozen=True)
class Exchange:
    """The choice, and the time of one bucket by every algorithm."""

    algorithm: str
    bucket_bytes: int
    bucket_s: float
    by_algorithm_s: dict[str, float]


def exchange_times(size_bytes: float, ranks: int, inside: int, machine: Machine, k: Constants) -> dict[str, float]:
    """Return the time to all-reduce a buffer by each algorithm."""
    up, out = k.fitted.e_nvl * machine.nvlink_Bps, k.fitted.e_net * max(machine.nic_Bps, 1.0)
    near, far = k.held.ring_hop_s, machine.hop_s
    if inside >= ranks:
        return {"ring": 2 * (ranks - 1) / ranks * size_bytes / up + 2 * (ranks - 1) * near}
    domains = max(2, ranks // inside)
    rate = min(up, inside * out)
    moved = 2 * (ranks - 1) / ranks * size_bytes
    ring = moved / rate + 2 * (ranks - domains) * near + 2 * domains * far
    tree = moved / (TREE_RATE * rate) + 2 * math.log2(domains) * far + 2 * (inside - 1) * near
    found = {"ring": ring, "tree": tree}
    if inside > 1:
        within = 2 * (inside - 1) / inside * size_bytes / up + 2 * (inside - 1) * near
        between = 2 * (domains - 1) / domains * size_bytes / inside / out + 2 * (domains - 1) * far
        found["hierarchical"] = within + between
    return found


def choose_exchange(decision: Decision, gradient_bytes: float, machine: Machine, k: Constants) -> Exchange | None:
    """Return algorithm and bucket for the gradients of one rank; None where there is nothing to exchange.

    A bucket's exchange hides behind the backward of the layers after it, except the last one: small buckets leave
    less exposed and pay the latency more often.
    """
    ranks = decision.dp * decision.cp
    if ranks == 1 or gradient_bytes <= 0:
        return None
    inside = max(1, min(machine.domain // decision.tp, ranks))
    best: Exchange | None = None
    least = math.inf
    for bucket in (b for b in BUCKETS if b <= gradient_bytes or b == BUCKETS[0]):
        times = exchange_times(bucket, ranks, inside, machine, k)
        algorithm = min(times, key=lambda name: times[name])
        fixed = exchange_times(0.0, ranks, inside, machine, k)[algorithm]
        price = times[algorithm] + (gradient_bytes / bucket - 1) * fixed
        if price < least:
            best, least = Exchange(algorithm, bucket, times[algorithm], times), price
    return best
