"""Failures: interruptions of a run, the checkpoint interval that suits them, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.fabric.fabric import Fabric
from syncline.plan.cost import checkpoint
from syncline.plan.cost.assumptions import Assumptions
from syncline.plan.cost.reliability import FailureRate, Reliability

LEAST_INTERVAL_S = 60.0
"""No interval is shorter, even where a checkpoint costs nothing: it must still be written somewhere."""
UNKNOWN_JOB_S = 100.0
"""What a checkpoint stops training for where no job is known: Alibaba HPN (SIGCOMM 2024), 30 GB a GPU."""


@dataclass(frozen=True)
class Outlook:
    """What failures do to a job of so many GPUs over so many days."""

    rate: FailureRate
    num_gpus: int
    days: float
    checkpoint_s: float
    restart_s: float
    interval_s: float
    interval_is_best: bool
    usd_per_gpu_hour: float

    @property
    def mttf_s(self) -> float:
        return self.rate.mttf_s(self.num_gpus)

    @property
    def goodput(self) -> float:
        """The share of time that is training which is kept."""
        if math.isinf(self.mttf_s):
            return self.interval_s / (self.interval_s + self.checkpoint_s)
        return float(checkpoint.goodput(self.interval_s, self.checkpoint_s, self.mttf_s, self.restart_s))

    @property
    def interruptions(self) -> float:
        """Unplanned interruptions expected in those days."""
        return self.days * 86400 / self.mttf_s

    @property
    def network_interruptions(self) -> float | None:
        """Those that switches, cables and NICs cause; None if the rate does not say."""
        share = self.rate.network_share
        return None if share is None else self.interruptions * share

    @property
    def lost_by(self) -> dict[str, float]:
        """The share of time lost to writing checkpoints, to restarts, and to work done twice."""
        writing = self.goodput * self.checkpoint_s / self.interval_s
        restarts = min(self.restart_s / self.mttf_s, 1 - self.goodput - writing)
        return {"checkpoints": writing, "restarts": restarts, "work done twice": 1 - self.goodput - writing - restarts}

    @property
    def lost_gpu_hours(self) -> float:
        return (1 - self.goodput) * self.num_gpus * self.days * 24

    @property
    def lost_usd(self) -> float:
        return self.lost_gpu_hours * self.usd_per_gpu_hour

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        mttf = self.mttf_s
        finite = math.isfinite(mttf)
        return {
            "system": self.rate.system,
            "per_gpu_hour": self.rate.per_gpu_hour,
            "source": self.rate.source,
            "gpus": self.num_gpus,
            "days": self.days,
            "mttf_s": mttf if finite else None,
            "interruptions": self.interruptions,
            "network_interruptions": self.network_interruptions,
            "checkpoint_s": self.checkpoint_s,
            "restart_s": self.restart_s,
            "checkpoint_interval_s": self.interval_s,
            "interval_is_best": self.interval_is_best,
            "young_s": float(checkpoint.young_s(self.checkpoint_s, mttf)) if finite else None,
            "daly_s": float(checkpoint.daly_s(self.checkpoint_s, mttf)) if finite else None,
            "goodput": self.goodput,
            "lost_by": self.lost_by,
            "lost_gpu_hours": self.lost_gpu_hours,
            "lost_usd": self.lost_usd,
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
        }


def outlook(
    num_gpus: int, days: float, rate: FailureRate, assumptions: Assumptions | None = None, usd_per_gpu_hour: float = 0.0
) -> Outlook:
    """Return what failures at this rate do to a job, with the best checkpoint interval unless one is assumed."""
    a = assumptions or Assumptions()
    if not (math.isfinite(days) and days > 0):
        raise CostError(f"a run must take a positive number of days, got {days:g}.")
    interval = a.checkpoint_interval_s
    stall = UNKNOWN_JOB_S if a.checkpoint_s is None else a.checkpoint_s
    if interval is None:
        mttf = min(rate.mttf_s(num_gpus), 1e12)
        interval = max(LEAST_INTERVAL_S, float(checkpoint.best_interval_s(stall, mttf)))
    return Outlook(
        rate, num_gpus, days, stall, a.restart_s, interval, a.checkpoint_interval_s is None, usd_per_gpu_hour
    )


def link_failures(fabric: Fabric, days: float, reliability: Reliability) -> float:
    """Return how many cables and switches of a fabric fail for good in so many days; flaps are not failures.

    The published shares are of NIC-to-leaf links and leaf switches; all others are taken to fail as often.
    """
    cables = int(fabric.links.num_cables[::2][fabric.links.cable[::2] >= 0].sum())
    hours = days * 24
    return hours * (
        cables * reliability.link_failures_per_hour + len(fabric.switches) * reliability.switch_failures_per_hour
    )


def implied_rate(failures: float, num_gpus: int, days: float) -> float:
    """Return failures per GPU-hour that so many in a run amount to."""
    if num_gpus < 1 or days <= 0:
        raise CostError("a run needs at least one GPU and a positive number of days.", hint="Check them.")
    return failures / (num_gpus * days * 24)


def poisson_at_least(count: int, mean: float) -> float:
    """Return the chance of at least so many random events where `mean` are expected."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    # Summed from the first term up, in logarithms: 1 minus the lower tail would lose what is below 1e-16.
    log_term = -mean + count * math.log(mean) - math.lgamma(count + 1)
    total, term, number = 1.0, 1.0, count
    while term > 1e-17 * total or number < mean:
        number += 1
        term *= mean / number
        total += term
    return min(1.0, math.exp(min(0.0, log_term + math.log(total))))
