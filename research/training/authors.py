"""What authors chose: where the layout of a published run ranks among all that its software could do, and why.

The search is held to the run's time: sequence parallelism, overlap and kernels are those of its framework and year,
FSDP only where the framework has it. Same GPUs, same batch, same sequence, same precision. The rank is by our model,
so it says where model and authors disagree, not who is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from research.training.observed import ObservedRun
from tests.planning.one_configuration import evaluate

from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.planning.block import PlanQuestion
from syncline.planning.decision import Decision
from syncline.planning.search import search
from syncline.planning.space import Axes
from syncline.sim.step.build import build_case
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine
from syncline.sim.step.memory import memory
from syncline.sim.step.reach import Reach
from syncline.workload.job import Job
from syncline.workload.software import facts_of

GIB = 2**30
#: Years in which Megatron got: interleaving (SC21), selective recomputation and sequence parallelism (Korthikanti),
#: a distributed optimizer, context parallelism.
INTERLEAVED, SELECTIVE, SHARDED_STATE, CONTEXT = 2021, 2022, 2022, 2023


MOST_RANKED = 4096
"""A layout behind more than so many others has this rank."""


@dataclass(frozen=True)
class RankedRun:
    """One published run beside the best that was found for it."""

    source: str
    model: str
    gpu: str
    num_gpus: int
    global_batch: int
    theirs: str
    ours: str
    measured_s: float
    theirs_s: float
    ours_s: float
    rank: int
    num_fitting: int
    theirs_gib: float
    theirs_fits: bool
    why: str

    @property
    def gain(self) -> float:
        """Part of the predicted time that the best layout saves."""
        return 1 - self.ours_s / self.theirs_s

    def to_json(self) -> JsonObject:
        """Return the row as plain data."""
        return dict(vars(self)) | {"gain": self.gain, "top_share": self.rank / max(self.num_fitting, 1)}


def rank_run(run: ObservedRun, constants: Constants | None = None) -> RankedRun | None:
    """Return where a run's layout ranks; None where nothing fits or the model is no transformer."""
    described = run.described
    job, k = described.job, constants or default_constants()
    facts = facts_of(job)
    job = job.model_copy(update={"software": job.software.model_copy(update={"framework": facts.framework})})
    question = PlanQuestion(_free(job), described.machine, flat(described.machine), k)
    case = build_case(job, described.machine)
    cost, held = step_cost(case, k), memory(case)
    theirs_s = float(cost.total)
    try:
        found = search(question, described.num_gpus, axes=_era(job), fix=_era_fix(job), keep=MOST_RANKED)
    except SynclineError:
        return None
    if not found.best:
        return None
    best = found.best[0].decision
    rank = sum(one.step_s < theirs_s * (1 - 1e-9) for one in found.best) + 1
    parts = {n: float(getattr(cost, n)) for n in ("compute", "tp", "cp", "ep", "fsdp", "dp", "p2p", "bubble")}
    return RankedRun(
        run.source, job.model.name, described.machine.gpu.name, described.num_gpus, job.batch.global_, _label(job),
        best.label, run.measured_s, theirs_s, found.best[0].step_s, rank, found.num_fitting,
        float(held.total) / GIB, bool(held.fits), _why(job, theirs_s, parts, bool(held.fits), question, best),
    )  # fmt: skip


def one_per_setting(runs: Iterable[ObservedRun]) -> list[ObservedRun]:
    """Return the fastest run of each source, model, GPU, number of GPUs, precision and batch."""
    best: dict[tuple[Any, ...], ObservedRun] = {}
    for run in runs:
        job = run.described.job
        key = (run.source, job.model.name, run.described.machine.gpu.name, run.described.num_gpus, job.precision,
               job.batch.global_, job.batch.sequence)  # fmt: skip
        if key not in best or run.measured_s < best[key].measured_s:
            best[key] = run
    return list(best.values())


def flat(machine: Machine) -> Reach:
    """Return the reach of a machine whose network is the same everywhere."""
    return Reach(machine.nic_Bps, machine.hop_s, machine.domain)


def _free(job: Job) -> Job:
    return job.model_copy(update={"gpus": None})


def _era(job: Job) -> Axes:
    """Return the choices that the run's software had."""
    facts, year, split = facts_of(job), job.software.year, job.parallel
    zero = {split.zero, "none", "1"} if year >= SHARDED_STATE else {split.zero, "none"}
    if facts.framework == "pytorch":
        zero = {split.zero, "3", "hsdp"}
    schedule = {"1f1b", split.schedule} | ({"interleaved"} if year >= INTERLEAVED or split.virtual > 1 else set())
    recompute = ("none", "selective", "selective-op", "full") if year >= SELECTIVE else ("none", "full")
    return Axes(
        zero=tuple(sorted(zero)), schedule=tuple(sorted(schedule)), recompute=recompute,
        sp=(facts.sequence_parallel or (split.sp is None and year >= SELECTIVE),), tp_overlap=(facts.tp_overlap,),
        dp_overlap=(facts.dp_overlap,),
    )  # fmt: skip


def _era_fix(job: Job) -> JsonObject:
    """Return what the run's software could not do: split a sequence."""
    return {"cp": 1} if job.software.year < CONTEXT and job.parallel.cp == 1 else {}


def _label(job: Job) -> str:
    split = job.parallel
    words = [f"tp {split.tp}", f"pp {split.pp}", f"dp {split.dp}"]
    words += [f"cp {split.cp}"] * (split.cp > 1) + [f"ep {split.ep}"] * (split.ep > 1)
    chunks = f", {split.virtual} chunks" if split.virtual > 1 else ""
    redo = f", recompute {job.recompute}" if job.recompute != "none" else ""
    zero = f", ZeRO {split.zero}" if split.zero != "none" else ""
    return f"{', '.join(words)}; micro-batch {job.batch.micro} x {job.num_micro}{chunks}{zero}{redo}"


def _why(
    job: Job, theirs_s: float, theirs: dict[str, float], fits: bool, question: PlanQuestion, best: Decision
) -> str:
    """Say which part of the time the best layout saves most, and what it changes."""
    ours = evaluate(question, best)
    saved = {name: value - ours.parts_s.get(name, 0.0) for name, value in theirs.items()}
    changed = _changes(job, best)
    if not changed:
        return "the same layout"
    names = {"compute": "arithmetic", "tp": "tensor-parallel exchange", "cp": "context exchange",
             "ep": "expert exchange",
             "fsdp": "parameter gathering", "dp": "gradient exchange", "p2p": "sends between stages",
             "bubble": "pipeline bubble"}  # fmt: skip
    largest = max(saved, key=lambda name: saved[name])
    words = (
        f"{', '.join(changed)}: {saved[largest] / theirs_s:.0%} less {names[largest]}"
        if saved[largest] > 0
        else ", ".join(changed)
    )
    if job.recompute == "full" and best.recompute != "full":
        words += "; our memory model says that less recomputation fits"
    if not fits:
        words += "; theirs does not fit in our memory model"
    return words


def _changes(job: Job, best: Decision) -> list[str]:
    split = job.parallel
    pairs = [("tp", split.tp, best.tp), ("pp", split.pp, best.pp), ("cp", split.cp, best.cp), ("ep", split.ep, best.ep),
             ("chunks", split.virtual, best.virtual), ("micro-batch", job.batch.micro, best.micro),
             ("recompute", job.recompute, best.recompute), ("ZeRO", split.zero, best.zero)]  # fmt: skip
    alike = {("fsdp", "3"), ("3", "fsdp"), ("selective", "none")}
    return [f"{n} {a} to {b}" for n, a, b in pairs if a != b and (a, b) not in alike]


def within(rows: Iterable[RankedRun], gain: float) -> int:
    """Return how many layouts are within this much of the best."""
    return sum(row.gain <= gain for row in rows)
