"""A step of reinforcement learning: answers are generated, the model trains on them, its weights go back.

Either all GPUs do both by turns (shared), or some generate while others train on the answers before (split), which is
one step off policy. Weights travel to every GPU that generates: all of them over its NIC, whole, each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import PlanError, SynclineError
from syncline.fabric.fabric import Fabric
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import rollout_s
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.job import Job
from syncline.workload.parallel import divisors
from syncline.workload.phases import Phase, Rollout
from syncline.workload.shape import Shape

#: Parts of the cluster that may generate while the rest trains.
SHARES = (1 / 4, 1 / 2, 3 / 4)


@dataclass(frozen=True)
class ReinforcementStep:
    """One way to do a step, and what its parts take."""

    shared: bool
    generating: int  # GPUs
    training: int
    split: Split  # of a replica that generates
    rollout_s: float
    weights_s: float
    weights_bytes: float  # that arrive at one GPU
    train_s: float
    trained: PlanResult

    @property
    def step_s(self) -> float:
        """By turns: one after the other. Split: the slower, and the weights, during which neither works."""
        if self.shared:
            return self.rollout_s + self.train_s + self.weights_s
        return max(self.rollout_s, self.train_s) + self.weights_s

    @property
    def num_gpus(self) -> int:
        return self.training if self.shared else self.training + self.generating

    @property
    def label(self) -> str:
        pp = f" pp {self.split.pp}" if self.split.pp > 1 else ""
        how = f"generate on tp {self.split.tp}{pp}"
        if self.shared:
            return f"{how}, then train on the same {self.training:,}"
        return f"{how}, {self.generating:,} GPUs, while {self.training:,} train"

    def to_json(self) -> JsonObject:
        """Return the step as plain data."""
        return {
            "shared": self.shared, "generating_gpus": self.generating, "training_gpus": self.training,
            "generate_tp": self.split.tp, "generate_pp": self.split.pp, "rollout_s": self.rollout_s,
            "train_s": self.train_s, "weights_s": self.weights_s, "weights_bytes_per_gpu": self.weights_bytes,
            "step_s": self.step_s,
        }  # fmt: skip


def reinforced(
    fabric: Fabric, phase: Phase, assumptions: Assumptions | None = None, prices: Prices | None = None
) -> ReinforcementStep:
    """Return the fastest way to do a step of a phase that learns from its own answers."""
    rollout = phase.rollout
    assert rollout is not None
    machine = machine_from_fabric(fabric)
    total, host = phase.job.gpus or machine.num_gpus, machine.gpus_per_host
    wanted = [] if rollout.on == "split" else [(total, total, True)]
    if rollout.on != "shared" and total >= 2 * host:
        parts = sorted({max(host, round(total * share / host) * host) for share in SHARES})
        wanted += [(part, total - part, False) for part in parts if total - part >= host]
    found, problem = list[ReinforcementStep](), None
    for generating, training, shared in wanted:
        try:
            job = phase.job.model_copy(update={"gpus": training})
            trained = make_plan(fabric, job, assumptions=assumptions, prices=prices, with_actions=False, with_run=False)
            found.append(_one(fabric, phase, rollout, generating, training, shared, trained))
        except SynclineError as error:
            problem = problem or error
    if not found:
        raise problem or PlanError(
            f"{phase.name} cannot be split: {total:,} GPUs are one host.", hint="Write `on: shared`."
        )
    return min(found, key=lambda way: way.step_s)


def _one(
    fabric: Fabric, phase: Phase, rollout: Rollout, generating: int, training: int, shared: bool, trained: PlanResult
) -> ReinforcementStep:
    split, took = _fastest(fabric, phase, rollout, generating)
    engine = Engine(fabric, _generating(phase), split)
    size = engine.weight_bytes
    rate = engine.k.fitted.e_net * engine.machine.nic_Bps
    return ReinforcementStep(
        shared, generating, training, split, took, size / max(rate, 1.0), size,
        trained.best.predicted.step_time_s, trained,
    )  # fmt: skip


def _fastest(fabric: Fabric, phase: Phase, rollout: Rollout, gpus: int) -> tuple[Split, float]:
    """Return the split of a replica with which so many GPUs answer soonest, and how long that takes."""
    shape, ways = phase.job.model, list[tuple[float, Split]]()
    assert isinstance(shape, Shape)
    for tp in (t for t in divisors(shape.heads) if t <= min(gpus, 64) and t & (t - 1) == 0):
        split = Split(tp)
        replicas = gpus // split.num_gpus
        each = rollout.sequences / max(replicas, 1)
        try:
            engine = Engine(fabric, _generating(phase), split)
            ways.append((rollout_s(engine, each, rollout.prompt, rollout.answer, rollout.answers), split))
        except SynclineError:
            continue
    took, split = min(ways, key=lambda way: way[0], default=(float("inf"), Split(1)))
    if took == float("inf"):
        raise PlanError(
            f"{phase.name}: {shape.name} with its cache does not fit {gpus:,} GPUs that generate.",
            hint="More GPUs, or shorter answers.",
        )
    return split, took


def _generating(phase: Phase) -> Job:
    """Return the phase's job as an engine reads it: its weights in the precision that generates."""
    precision = "fp8" if phase.job.precision == "fp8" else "bf16"
    return phase.job.model_copy(update={"precision": precision})
