"""Goodput of one job: its state, where that is written, how often, how its parts fail, and how it starts again.

This is the one place that computes it. Goodput is the share of the paid time that is training which is kept: what
checkpoints, restarts and work done twice leave, times the speed that hosts in repair leave.

An asynchronous checkpoint stops training for a copy into host memory and is written behind the steps; until it is on
storage, the one before it is what a failure goes back to. A synchronous one stops training until it is written.

    found = recovery(job, step_s=15.4, parts=Parts(512, 64, 512), assumptions=Assumptions())
    found.goodput, found.lost_by
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from syncline.fabric.fabric import DeviceKind, Fabric
from syncline.planning.cost import checkpoint
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.reliability import REPAIRS, FailureRate, Reliability, failure_rate, load_reliability
from syncline.planning.cost.standby import Standby
from syncline.workload.adapters import adapter_share
from syncline.workload.job import Job

#: No interval is shorter, even where a checkpoint costs nothing: it must still be written somewhere.
LEAST_INTERVAL_S = 60.0
#: Below this share of the time a job never ends.
LEAST_GOODPUT = 1e-6
#: A checkpoint holds 16-bit weights, their 32-bit copy and two moments of the optimizer.
STATE_BYTES_PER_PARAMETER = 14.0
#: What is known to work: heartbeats instead of time-outs, and hosts that stand by booted.
QUICK_DETECT_S, QUICK_START_S = 30.0, 150.0
#: Storage also feeds samples and other jobs: checkpoints keep it busy for half of the time at most.
STORAGE_SHARE = 0.5

#: Means of the twentieths of an exponential distribution with mean 1.
_UP_TO = np.linspace(0.0, 1.0, 21)[:-1]
EXPONENTIAL = tuple(20 * np.diff([*((1 - _UP_TO) * (np.log1p(-_UP_TO) - 1)), 0.0]))


@dataclass(frozen=True)
class Parts:
    """What of a cluster can fail: GPUs, hosts and network cards; and what stands in for a host."""

    num_gpus: int
    num_hosts: int
    num_nics: int
    spares: int | None = None  # None: a host is always at hand
    rents: bool = False  # it is rented
    repair_s: float | None = None  # None: as published

    def of(self, num_gpus: int) -> Parts:
        """Return the parts of a job on so many of the GPUs, or of a larger cluster of the same hosts."""
        share = num_gpus / self.num_gpus
        hosts, nics = max(1, round(self.num_hosts * share)), max(0, round(self.num_nics * share))
        return replace(self, num_gpus=num_gpus, num_hosts=hosts, num_nics=nics)

    @property
    def paid_gpus(self) -> int:
        """GPUs of the job and of its spare hosts."""
        return self.num_gpus + (self.spares or 0) * self.num_gpus // self.num_hosts


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
    detect_s: float  # until somebody notices the failure
    begin_s: float  # that, replacing the host, and starting again
    stall_s: float  # what training waits for one checkpoint
    interval_s: float
    stated: tuple[str, ...]  # which of these the job or the assumptions say, the others are computed
    repair_hours: tuple[float, ...] = (0.0,)  # until a host is back, each as likely as the next
    repair_source: str = ""
    replica_hosts: int = 0  # of an elastic job; 0: it waits

    @property
    def standby(self) -> Standby:
        """What stands in for hosts that fail."""
        losses = 0.0 if math.isinf(self.mttf_s) else self.rate.host_share / self.mttf_s
        repair_s = 3600 * sum(self.repair_hours) / len(self.repair_hours)
        return Standby(self.parts.num_hosts, self.parts.spares, losses, repair_s, self.replica_hosts, self.regrow_s)

    @property
    def regrow_s(self) -> float:
        """What an elastic job pays to take a host back: a restart that nobody has to notice."""
        return self.restart_s - self.detect_s

    def with_spares(self, spares: int | None) -> Recovery:
        """Return the same job with other spare hosts."""
        return replace(self, parts=replace(self.parts, spares=spares, rents=False))

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

    def goodput_at(
        self, rate_factor: float | Values, begin_s: float | Values, repair_factor: float | Values = 1.0
    ) -> Values:
        """Return the goodput with parts that fail more or less often, and starts and repairs that take other times."""
        if math.isinf(self.mttf_s):
            return np.asarray(self.interval_s / (self.interval_s + self.stall_s), np.float64)
        restart = np.asarray(begin_s) + self.restart_s - self.begin_s
        kept = checkpoint.goodput(self.interval_s, self.stall_s, self.mttf_s / np.asarray(rate_factor), restart)
        result: Values = kept * self.standby.availability(rate_factor, repair_factor)
        return result

    @property
    def lost_by(self) -> dict[str, float]:
        """The share of time lost to writing checkpoints, to restarts, to work done twice, and to hosts in repair."""
        running = float(self.standby.availability())
        lost = running - self.goodput
        writing = self.goodput * self.stall_s / self.interval_s
        restarts = min(running * (self.begin_s + self.load_s) / self.mttf_s, lost - writing)
        found = {"checkpoints": writing, "restarts": restarts, "work done twice": lost - writing - restarts}
        return found if self.parts.spares is None else found | {"hosts in repair": 1 - running}

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
            detect_s=self.detect_s,
            restart_s=self.begin_s - self.detect_s,
            checkpoint_interval_s=self.interval_s,
            lost_by=self.lost_by,
            stated=self.stated,
            host_share=self.rate.host_share,
            spares=self.parts.spares,
            repair_s=self.standby.repair_s,
            repair_source=self.repair_source,
            young_s=float(checkpoint.young_s(self.stall_s, self.mttf_s)) if math.isfinite(self.mttf_s) else None,
            daly_s=float(checkpoint.daly_s(self.stall_s, self.mttf_s)) if math.isfinite(self.mttf_s) else None,
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
    detect_s: float
    restart_s: float
    """Replacing the host and starting again."""
    checkpoint_interval_s: float
    lost_by: dict[str, float]
    stated: tuple[str, ...]
    host_share: float
    """The part of the failures that take a host away."""
    spares: int | None
    """Spare hosts; None: one is taken to be at hand for every failure."""
    repair_s: float
    repair_source: str
    young_s: float | None
    """Young's and Daly's intervals between checkpoints."""
    daly_s: float | None


def state_bytes(job: Job) -> float:
    """Return the size of a job's whole training state."""
    return STATE_BYTES_PER_PARAMETER * job.model.params


def parts_of(fabric: Fabric) -> Parts:
    """Return what of a fabric can fail."""
    nics = int((fabric.devices.kind == DeviceKind.NIC).sum())
    spares, rents = fabric.spec.spares, fabric.spec.spares == "rent"
    whole = None if isinstance(spares, str) else spares
    return Parts(fabric.num_gpus, fabric.num_hosts, nics, whole, rents, fabric.spec.repair)


def recovery(
    job: Job, step_s: float, parts: Parts, assumptions: Assumptions, rate: FailureRate | None = None,
    replica_gpus: int = 0,
) -> Recovery:  # fmt: skip
    """Return how this job loses time, from its own checkpoints where it says how it makes them.

    `replica_gpus` is what one replica of the job runs on, where a plan knows it better than the job.
    """
    a = assumptions
    rate = rate or failure_rate(a.reliability, parts.num_gpus)
    rate = rate.on_parts(parts.num_gpus, parts.num_hosts, parts.num_nics)
    hours, repairs = _repairs(rate, parts)
    per_host = parts.num_gpus / parts.num_hosts
    replica = math.ceil((replica_gpus or job.parallel.model_ranks) / per_host) if job.elastic else 0
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
        rate, parts, state, write_Bps, behind, snapshot, write, load, a.detect_s, a.detect_s + a.restart_s, stall,
        interval or 0.0, tuple(stated), hours, repairs, replica,
    )  # fmt: skip
    return whole if interval is not None else replace(whole, interval_s=whole.best_interval_s)


def _repairs(rate: FailureRate, parts: Parts) -> tuple[tuple[float, ...], str]:
    """Return how long hosts are away, and who says so: the cluster, the failures' own source, or a published system."""
    if parts.repair_s is not None:
        return tuple(parts.repair_s / 3600 * part for part in EXPONENTIAL), "as stated, exponential"
    if rate.repair_hours:
        return rate.repair_hours, rate.source
    published = load_reliability().rate(REPAIRS)
    return published.repair_hours, f"assumed as in {published.source}"


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
    spares, enough = found.parts.spares, found.standby.enough
    if spares is not None and spares < enough:
        words = f"{enough} spare hosts instead of {spares}"
        changes.append(("spares", words, found.with_spares(enough)))
    if found.detect_s > QUICK_DETECT_S:
        words = f"failures noticed in {QUICK_DETECT_S:.0f} s instead of {found.detect_s / 60:.0f} min (heartbeats)"
        begin_s = found.begin_s - found.detect_s + QUICK_DETECT_S
        changes.append(("detect", words, replace(found, detect_s=QUICK_DETECT_S, begin_s=begin_s)))
    if found.begin_s - found.detect_s > QUICK_START_S:
        now_s = found.begin_s - found.detect_s
        words = f"restarts in {QUICK_START_S:.0f} s instead of {now_s:.0f}: hosts that stand by booted"
        changes.append(("restart", words, replace(found, begin_s=found.detect_s + QUICK_START_S)))
    quick = replace(found, write_s=found.write_s / 4, load_s=found.load_s / 4, write_Bps=found.write_Bps * 4)
    if not found.asynchronous:
        quick = replace(quick, stall_s=max(found.stall_s - 0.75 * found.write_s, 0.0))
    changes.append(("storage", "four times the storage bandwidth", quick))
    return tuple(changes)


def link_failures(fabric: Fabric, days: float, reliability: Reliability) -> float:
    """Return how many cables and switches of a fabric fail for good in so many days; flaps are not failures.

    The published shares are of NIC-to-leaf links and leaf switches; all others are taken to fail as often.
    """
    cables = int(fabric.links.num_cables[::2][fabric.links.cable[::2] >= 0].sum())
    a_hour = cables * reliability.link_failures_per_hour + len(fabric.switches) * reliability.switch_failures_per_hour
    return days * 24 * a_hour
