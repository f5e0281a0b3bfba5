"""One training step of a job on a fabric: how long, why, and what it needs.

result = step(load("h100-64-rail"), load_job("job.yaml"))
result.step_time_s, result.mfu, result.limit
save(step_timeline(result), "step.json")
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from syncline.codec.names import PLAIN
from syncline.fabric.fabric import Fabric
from syncline.sim.slow_port import slow_links
from syncline.sim.step.account import free_network_s, predicted_account
from syncline.sim.step.arithmetic.layers_cost import layers_cost
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.cost import StepCost, step_cost
from syncline.sim.step.floor import check_floor, floor_s, roof_s
from syncline.sim.step.laid import laid_case
from syncline.sim.step.limit import Limit, limit_of
from syncline.sim.step.machine import Machine, machine_from_fabric, reached
from syncline.sim.step.memory import COUNTED, USABLE, memory
from syncline.sim.step.storage import Storage, storage_of
from syncline.sim.step.tiers import comm_bytes
from syncline.sim.uncertainty import Interval, Narrowing, Spread, StepFacets, generation_of, memory_spread, step_spread
from syncline.timeline.account import Account, StepCause
from syncline.workload.grid import grid_of
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import check_feed, check_split
from syncline.workload.shape import Shape
from syncline.workload.software import Facts, facts_of
from syncline.workload.volumes import unpriced_volumes, volumes

MEASURED_STEP = Narrowing(
    "one measured step of this job", "syncline calibrate step CLUSTER JOB --log train.log --out profile.yaml", 1.0
)
#: What this model cannot see; printed with its numbers.
IGNORES = (
    "other jobs",
    "stragglers and failures",
    "ECMP collisions",
    "input pipelines on the host",
    "allocator retries",
)


@dataclass(frozen=True, eq=False)
class StepResult:
    """The price of one step with its reasons. Times in seconds, bytes per GPU."""

    job: Job
    machine: Machine
    facts: Facts
    num_gpus: int
    step_time_s: float
    parts_s: dict[str, float]
    comm_bytes: dict[str, dict[str, float]]
    memory_bytes: dict[str, float]
    fits: bool
    limit: Limit
    storage: Storage
    account: Account
    warnings: tuple[str, ...] = ()
    warm_up_s: float | None = None
    floor_s: float = 0.0  # no run of this step can beat it
    case: Case | None = field(default=None, repr=False)
    cost: StepCost | None = field(default=None, repr=False)

    @property
    def samples_per_s(self) -> float:
        return self.job.batch.global_ / self.step_time_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the whole job per second; samples where the model has no tokens."""
        per_sample = self.job.batch.sequence if isinstance(self.job.model, Shape) else 1
        return self.samples_per_s * per_sample

    @property
    def exposed_comm_s(self) -> float:
        """Communication that nothing hides, pipeline bubbles not among it."""
        return self.account.seconds(StepCause.NETWORK)

    @property
    def peak_flops(self) -> float:
        """Datasheet rate of one GPU in the job's precision, against which `mfu` counts."""
        dies = max(self.machine.gpu.num_dies, 1)
        precision: Any = self.job.precision
        return (self.machine.gpu.flops_at(precision) or self.machine.gpu.flops_at("fp16") or np.nan) / dies

    @property
    def mfu(self) -> float:
        """Model operations over peak: no recomputed work, causal attention halved."""
        model = self.job.model
        if isinstance(model, LayerList):
            flops = model.flops_per_sample * self.job.batch.global_
        else:
            batch = self.job.batch
            flops = model.flops_per_token(batch.sequence, self.job.frozen) * batch.global_ * batch.sequence
        return flops / (self.step_time_s * self.num_gpus * self.peak_flops)

    @property
    def spread(self) -> Spread:
        """How far off the step time may be, from published runs of the same kind."""
        return self._spread(stated_of(self.job, self.facts))

    def calibrated_spread(self, shared: str) -> Spread:
        """Return the same after a step was measured here that has so much in common: `system`, `model` or `job`.

        Two splits of one job are as far off against each other as those of a measured model.
        """
        return self._spread("calibrated", shared)

    def _spread(self, stated: str, shared: str = "") -> Spread:
        gpu = self.machine.gpu
        generation = generation_of(gpu.architecture, gpu.vendor)
        return step_spread(StepFacets(kind_of(self.job), stated, generation, self.job.precision, self.num_gpus, shared))

    def interval(self, took_s: float | None = None, *, shared: str = "") -> Interval:
        """Return where the step time lies, or that of an execution: never below what the hardware allows.

        `shared` is what a measured step has in common with this one, if one was measured.
        """
        spread, after = self.calibrated_spread(shared) if shared else self.spread, self.calibrated_spread("job")
        narrower = None if shared == "job" else replace(MEASURED_STEP, width=after.high_90 / after.low_90)
        found = spread.of(self.step_time_s if took_s is None else took_s).above(self.floor_s)
        return replace(found, narrower=narrower)

    @property
    def memory_interval(self) -> Interval:
        """Where the memory of the fullest GPU lies: what is counted exactly is there in any case."""
        total = self.memory_bytes["total"]
        counted = sum(self.memory_bytes.get(name, 0.0) for name in COUNTED)
        return memory_spread(self.facts.framework).of(total).above(counted)

    @property
    def fit_chance(self) -> float:
        """How likely the fullest GPU's memory suffices."""
        return self.memory_interval.chance_below(USABLE * float(self.machine.gpu.memory_bytes))


def kind_of(job: Job) -> str:
    """Return what kind of model a job trains: dense, experts or layers."""
    if isinstance(job.model, LayerList):
        return "layers"
    return "dense" if job.model.moe is None else "experts"


def stated_of(job: Job, facts: Facts) -> str:
    """Return how much a job says of its software: plain, software (framework), described (kernels and overlap too)."""
    if job.software.framework == "auto":
        return "plain"
    overlap = {"overlap.tp", "overlap.dp", "compiled"} - set(facts.assumed)
    return "described" if overlap and "attention" not in facts.assumed else "software"


@dataclass(frozen=True, eq=False)
class _Placed:
    """A job on a machine before it is priced."""

    job: Job
    machine: Machine
    case: Case


def step(
    fabric: Fabric | Machine, job: Job, constants: Constants | None = None, machine: Machine | None = None
) -> StepResult:
    """Return the price of one step of a job on a fabric (or on a machine already read from one).

    `machine` is what a rank of the fabric can do where that has been read, or changed. Of 1-bit Adam it is the price of
    the steps after the warm-up, whose own, dense steps stand beside it.
    """
    result = _step(fabric, job, constants, machine)
    if job.sync.method != "one-bit-adam":
        return result
    dense = job.sync.model_copy(update={"method": "allreduce", "codec": PLAIN})
    first = _step(fabric, job.model_copy(update={"sync": dense}), constants, machine)
    return replace(result, warm_up_s=first.step_time_s)


def _step(fabric: Fabric | Machine, job: Job, constants: Constants | None, machine: Machine | None) -> StepResult:
    k, built = constants or default_constants(), fabric if isinstance(fabric, Fabric) else None
    machine = fabric if isinstance(fabric, Machine) else machine or machine_from_fabric(fabric)
    dies = max(machine.gpu.num_dies, 1)
    job = job.on(machine.num_gpus * dies)
    num_gpus = job.parallel.model_ranks * (job.parallel.dp or 1)
    if not isinstance(fabric, Machine):
        machine = reached(machine, fabric, job.parallel)
    if isinstance(job.model, LayerList):
        return _layers_step(job, machine, k, num_gpus)
    check_split(job.model, job.parallel)
    check_feed(job.parallel, job.num_micro)
    job = choose_recompute(job, machine)
    facts = facts_of(job)
    case = build_case(job, machine, facts)
    if built is not None:
        case = laid_case(built, _Placed(job, machine, case), k)
    cost, held = step_cost(case, k), memory(case)
    parts = {n: float(getattr(cost, n)) for n in _PARTS}
    total = float(cost.total)
    storage = storage_of(job, total)
    parts["storage"] = storage.stall_s_per_step
    total += storage.stall_s_per_step
    fits = bool(held.fits)
    sent = comm_bytes(volumes(job) + unpriced_volumes(job), grid_of(job.parallel), machine)
    floor = roof_s(job, machine, num_gpus, float(held.optimizer))
    floor = check_floor(total, max(floor, floor_s(built, job, machine)) if built is not None else floor, job.name)
    slow = slow_links(built) if built is not None and num_gpus > machine.domain else ()
    whole = {"fsdp": float(cost.fsdp_wire), "dp": float(cost.dp_wire), "p2p": float(cost.p2p_wire)}
    free_s = free_network_s(case, k) + storage.stall_s_per_step
    return StepResult(
        account=predicted_account(job.name, parts, total, free_s, whole),
        floor_s=floor, job=job, machine=machine, facts=facts, num_gpus=num_gpus, step_time_s=total, parts_s=parts,
        comm_bytes=sent,
        memory_bytes=held.as_dict(), fits=fits, limit=limit_of(parts, total, machine, case, fits, k), storage=storage,
        warnings=_warnings(job, machine, case, held.total) + slow, case=case, cost=cost,
    )  # fmt: skip


_PARTS = ("compute", "tp", "cp", "ep", "host", "fsdp", "dp", "p2p", "bubble", "optimizer", "codec", "fixed")


def choose_recompute(job: Job, machine: Machine) -> Job:
    """Return the job with `recompute: auto` replaced by the least that fits in memory."""
    if job.recompute != "auto":
        return job
    by_operation = facts_of(job).framework == "pytorch"
    blocks = ("partial-25", "partial-50", "partial-75")
    for kind in ("none", *(("selective-op",) if by_operation else blocks)):
        candidate = job.model_copy(update={"recompute": kind})
        if memory(build_case(candidate, machine)).fits:
            return candidate
    return job.model_copy(update={"recompute": "full"})


def _layers_step(job: Job, machine: Machine, k: Constants, num_gpus: int) -> StepResult:
    facts = facts_of(job)
    cost = layers_cost(job, machine, k, facts.gradient_bytes, facts.parameter_bytes)
    parts = {
        "compute": cost.compute,
        "ep": cost.exchange,
        "dp": cost.dp,
        "optimizer": cost.optimizer,
        "codec": cost.codec,
        "fixed": cost.fixed,
    }
    model = job.model
    assert isinstance(model, LayerList)
    share = num_gpus if job.parallel.sharded_params else 1
    state = 16.0 * model.replicated_params / share + 4.0 * (model.params - model.replicated_params) / num_gpus
    kept = 4.0 * model.elements_per_sample * job.batch.global_ / num_gpus
    held = {"parameters": state, "activations": kept, "total": state + kept}
    fits = held["total"] < machine.gpu.memory_bytes
    storage = storage_of(job, cost.total)
    total = cost.total + storage.stall_s_per_step
    sent = comm_bytes(volumes(job) + unpriced_volumes(job), grid_of(job.parallel), machine)
    limit = limit_of(parts, total, machine, None, fits)
    parts["storage"] = storage.stall_s_per_step
    account = predicted_account(job.name, parts, total, total - cost.exchange - cost.dp)
    return StepResult(job, machine, facts, num_gpus, total, parts, sent, held, fits, limit, storage, account)


def _warnings(job: Job, machine: Machine, case: Case, held: Any) -> tuple[str, ...]:
    found = []
    share = float(held) / float(case.memory_bytes)
    if 0.9 < share <= 1.0:
        found.append(f"memory is {share:.0%} full: allocators retry, and published runs this full are 7 to 22 % slower")
    if share > 1.0:
        found.append(
            f"needs {float(held) / 2**30:.0f} GiB a GPU, {machine.gpu.name} has {float(case.memory_bytes) / 2**30:.0f}"
        )
    if isinstance(job.model, Shape) and (tp := job.parallel.tp) > (keys := job.model.num_kv_heads):
        found.append(
            f"tp {tp} copies each of {keys} KV heads to {tp // keys} ranks: Megatron and torchtitan refuse that"
        )
    if machine.gpu.vendor != "nvidia":
        found.append(f"sustained rates of {machine.gpu.name} are assumed, not fitted")
    return tuple(found)
