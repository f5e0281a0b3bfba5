"""Goodput of one job: its state, where that is written, how often, how its parts fail, and how it starts again.

An asynchronous checkpoint stops training for a copy into host memory and is written behind the steps; until it is on
storage, the one before it is what a failure goes back to. A synchronous one stops training until it is written.

    found = recovery(job, step_s=15.4, parts=Parts(512, 64, 512), assumptions=Assumptions())
    found.goodput, found.lost_by
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.fabric.fabric import DeviceKind, Fabric
from syncline.planning.cost import checkpoint
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.reliability import FailureRate, Reliability, load_reliability
from syncline.workload.adapters import adapter_share
from syncline.workload.job import Job

#: No interval is shorter, even where a checkpoint costs nothing: it must still be written somewhere.
LEAST_INTERVAL_S = 60.0
#: What a checkpoint stops training for where no job is known: Alibaba HPN (SIGCOMM 2024), 30 GB a GPU.
UNKNOWN_JOB_S = 100.0
#: Below this share of the time a job never ends.
LEAST_GOODPUT = 1e-6
#: A checkpoint holds 16-bit weights, their 32-bit copy and two moments of the optimizer.
STATE_BYTES_PER_PARAMETER = 14.0
#: Storage also feeds samples and other jobs: checkpoints keep it busy for half of the time at most.
STORAGE_SHARE = 0.5


@dataclass(frozen=True)
class Parts:
    """What of a cluster can fail: GPUs, hosts and network cards."""

    num_gpus: int
    num_hosts: int
    num_nics: int

    def of(self, num_gpus: int) -> Parts:
        """Return the parts of a job on so many of the GPUs, or of a larger cluster of the same hosts."""
        share = num_gpus / self.num_gpus
        return Parts(num_gpus, max(1, round(self.num_hosts * share)), max(0, round(self.num_nics * share)))


@dataclass(frozen=True)
class Recovery:
    """How a job saves its state and comes back, and the share of time that is left for training."""

    rate: FailureRate
    parts: Parts
    state_bytes: float
    write_Bps: float
    asynchronous: bool
    snapshot_s: float
    write_s: float
    load_s: float
    begin_s: float  # notice the failure, replace the host, start again
    stall_s: float  # what training waits for one checkpoint
    interval_s: float
    stated: tuple[str, ...]  # which of these the job or the assumptions say, the others are computed

    @property
    def mttf_s(self) -> float:
        return self.rate.mttf_s(self.parts.num_gpus)

    @property
    def restart_s(self) -> float:
        """From a failure to the step at which the last checkpoint was on its way: work of that time is lost too."""
        return self.begin_s + self.load_s + (self.write_s if self.asynchronous else 0.0)

    @property
    def goodput(self) -> float:
        """The share of time that is training which is kept."""
        return float(self.goodput_at(1.0, self.begin_s))

    def goodput_at(self, rate_factor: float | Values, begin_s: float | Values) -> Values:
        """Return the goodput with parts that fail more or less often and a start that takes longer or shorter."""
        if math.isinf(self.mttf_s):
            return np.asarray(self.interval_s / (self.interval_s + self.stall_s), np.float64)
        restart = np.asarray(begin_s) + self.restart_s - self.begin_s
        return checkpoint.goodput(self.interval_s, self.stall_s, self.mttf_s / np.asarray(rate_factor), restart)

    @property
    def lost_by(self) -> dict[str, float]:
        """The share of time lost to writing checkpoints, to restarts, and to work done twice."""
        lost = 1 - self.goodput
        writing = self.goodput * self.stall_s / self.interval_s
        restarts = min((self.begin_s + self.load_s) / self.mttf_s, lost - writing)
        return {"checkpoints": writing, "restarts": restarts, "work done twice": lost - writing - restarts}

    def interruptions_in(self, days: float) -> float:
        """Return the unplanned interruptions expected in so many days."""
        return days * 86400 / self.mttf_s

    @property
    def best_interval_s(self) -> float:
        """The interval that leaves most time for training, no shorter than storage takes to write."""
        best = float(checkpoint.best_interval_s(self.stall_s, min(self.mttf_s, 1e12)))
        return max(LEAST_INTERVAL_S, self.write_s / STORAGE_SHARE if self.asynchronous else 0.0, best)

    def report(self) -> RecoveryReport:
        """Return the figures as `syncline plan --json` prints them."""
        return RecoveryReport(
            goodput=self.goodput,
            mttf_s=self.mttf_s if math.isfinite(self.mttf_s) else None,
            rate=self.rate.system,
            rate_source=self.rate.source,
            per_gpu_hour=self.rate.per_gpu_hour,
            state_bytes=self.state_bytes,
            storage_write_Bps=self.write_Bps,
            asynchronous=self.asynchronous,
            checkpoint_stall_s=self.stall_s,
            checkpoint_write_s=self.write_s,
            load_s=self.load_s,
            restart_s=self.begin_s,
            checkpoint_interval_s=self.interval_s,
            lost_by=self.lost_by,
            stated=self.stated,
        )


@dataclass(frozen=True)
class RecoveryReport:
    """How a job saves its state and comes back after a failure: its fields are the JSON."""

    goodput: float
    mttf_s: float | None
    rate: str
    """The system whose failure rate is taken."""
    rate_source: str
    per_gpu_hour: float
    state_bytes: float
    storage_write_Bps: float
    asynchronous: bool
    checkpoint_stall_s: float
    checkpoint_write_s: float
    load_s: float
    restart_s: float
    checkpoint_interval_s: float
    lost_by: dict[str, float]
    stated: tuple[str, ...]


def state_bytes(job: Job) -> float:
    """Return the size of a job's whole training state."""
    return STATE_BYTES_PER_PARAMETER * job.model.params


def parts_of(fabric: Fabric) -> Parts:
    """Return what of a fabric can fail."""
    nics = int((fabric.devices.kind == DeviceKind.NIC).sum())
    return Parts(fabric.num_gpus, fabric.num_hosts, nics)


def recovery(
    job: Job, step_s: float, parts: Parts, assumptions: Assumptions, rate: FailureRate | None = None
) -> Recovery:
    """Return how this job loses time, from its own checkpoints where it says how it makes them."""
    a = assumptions
    rate = (rate or load_reliability().rate(a.reliability)).on_parts(parts.num_gpus, parts.num_hosts, parts.num_nics)
    state, base = state_bytes(job), 0.0
    if job.frozen:  # only adapters change; the weights are read again when it starts anew, and never written
        state, base = adapter_share(job) * state, 2.0 * job.model.params
    given = job.checkpoint.storage_rate or job.data.storage_rate
    write_Bps = given or a.storage_Bps_per_host * parts.num_hosts
    write = state / write_Bps
    behind = job.checkpoint.asynchronous and a.checkpoint_s is None
    snapshot = state / _writers(job, parts) / a.snapshot_Bps
    stall = a.checkpoint_s if a.checkpoint_s is not None else snapshot if behind else snapshot + write
    stated = ["storage"] if given else []
    stated += ["checkpoint_s"] if a.checkpoint_s is not None else []
    interval = job.checkpoint.every_steps * step_s if job.checkpoint.every_steps else a.checkpoint_interval_s
    stated += ["interval"] if interval is not None else []
    load = write + base / write_Bps
    whole = Recovery(
        rate, parts, state, write_Bps, behind, snapshot, write, load, a.restart_s, stall, interval or 0.0, tuple(stated)
    )
    return whole if interval is not None else replace(whole, interval_s=whole.best_interval_s)


def _writers(job: Job, parts: Parts) -> int:
    """Return how many ranks copy a part of the state: all where it is sharded, else those of one replica."""
    split = job.parallel
    sharded = split.sharded_state or split.sharded_params
    return parts.num_gpus if sharded else max(1, min(parts.num_gpus, split.model_ranks))


def faster_recoveries(found: Recovery) -> tuple[tuple[str, str, Recovery], ...]:
    """Return changes of checkpoints and restarts that are known to work: name, words, what is left then."""
    changes = []
    if not found.asynchronous:
        least = max(LEAST_INTERVAL_S, found.write_s / STORAGE_SHARE)
        behind = replace(found, asynchronous=True, stall_s=found.snapshot_s, interval_s=least)
        changes.append(("async-checkpoint", "checkpoints written behind the steps (asynchronous)", behind))
    best = found.best_interval_s
    if "interval" in found.stated and not 0.8 < found.interval_s / best < 1.25:
        words = f"a checkpoint every {best / 60:.0f} min instead of every {found.interval_s / 60:.0f}"
        changes.append(("checkpoint-interval", words, replace(found, interval_s=best)))
    if found.begin_s > 180:
        words = (
            f"restarts in 3 min instead of {found.begin_s / 60:.0f}: hot spare hosts, failures noticed within seconds"
        )
        changes.append(("restart", words, replace(found, begin_s=180.0)))
    quick = replace(found, write_s=found.write_s / 4, load_s=found.load_s / 4, write_Bps=found.write_Bps * 4)
    if not found.asynchronous:
        quick = replace(quick, stall_s=max(found.stall_s - 0.75 * found.write_s, 0.0))
    changes.append(("storage", "four times the storage bandwidth", quick))
    return tuple(changes)


@dataclass(frozen=True)
class Outlook(Recovery):
    """What failures do to a cluster over so many days, where its job is not known."""

    days: float = 0.0
    usd_per_gpu_hour: float = 0.0

    @property
    def num_gpus(self) -> int:
        return self.parts.num_gpus

    @property
    def interval_is_best(self) -> bool:
        return "interval" not in self.stated

    @property
    def interruptions(self) -> float:
        """Unplanned interruptions expected in those days."""
        return self.interruptions_in(self.days)

    @property
    def network_interruptions(self) -> float | None:
        """Those that switches, cables and NICs cause; None if the rate does not say."""
        share = self.rate.network_share
        return None if share is None else self.interruptions * share

    @property
    def lost_gpu_hours(self) -> float:
        return (1 - self.goodput) * self.num_gpus * self.days * 24

    @property
    def lost_usd(self) -> float:
        return self.lost_gpu_hours * self.usd_per_gpu_hour

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        mttf = self.mttf_s if math.isfinite(self.mttf_s) else None
        return {
            "system": self.rate.system, "per_gpu_hour": self.rate.per_gpu_hour, "source": self.rate.source,
            "gpus": self.num_gpus, "days": self.days, "mttf_s": mttf, "interruptions": self.interruptions,
            "network_interruptions": self.network_interruptions, "checkpoint_s": self.stall_s,
            "restart_s": self.restart_s, "checkpoint_interval_s": self.interval_s,
            "interval_is_best": self.interval_is_best,
            "young_s": None if mttf is None else float(checkpoint.young_s(self.stall_s, mttf)),
            "daly_s": None if mttf is None else float(checkpoint.daly_s(self.stall_s, mttf)),
            "goodput": self.goodput, "lost_by": self.lost_by, "lost_gpu_hours": self.lost_gpu_hours,
            "lost_usd": self.lost_usd, "usd_per_gpu_hour": self.usd_per_gpu_hour,
        }  # fmt: skip


def outlook(
    num_gpus: int, days: float, rate: FailureRate, assumptions: Assumptions | None = None, usd_per_gpu_hour: float = 0.0
) -> Outlook:
    """Return what failures at this rate do to a cluster, with the best checkpoint interval unless one is assumed."""
    a = assumptions or Assumptions()
    if not (math.isfinite(days) and days > 0):
        raise CostError(f"a run must take a positive number of days, got {days:g}.")
    stall = UNKNOWN_JOB_S if a.checkpoint_s is None else a.checkpoint_s
    interval = a.checkpoint_interval_s
    seen = Outlook(
        rate, Parts(num_gpus, 0, 0), 0.0, 0.0, False, 0.0, 0.0, 0.0, a.restart_s, stall, interval or 0.0,
        ("interval",) if interval else (), days, usd_per_gpu_hour,
    )  # fmt: skip
    return seen if interval else replace(seen, interval_s=seen.best_interval_s)


def link_failures(fabric: Fabric, days: float, reliability: Reliability) -> float:
    """Return how many cables and switches of a fabric fail for good in so many days; flaps are not failures.

    The published shares are of NIC-to-leaf links and leaf switches; all others are taken to fail as often.
    """
    cables = int(fabric.links.num_cables[::2][fabric.links.cable[::2] >= 0].sum())
    a_hour = cables * reliability.link_failures_per_hour + len(fabric.switches) * reliability.switch_failures_per_hour
    return days * 24 * a_hour
