"""The rehearsal: calibrate on some sizes, predict others and whole training steps, run both, and compare.

found = rehearse("cluster.yaml", Job())
found.operations[0].gap, found.recommended
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.bench.rehearsal.job import PLAIN, Job
from syncline.bench.rehearsal.wiring import wiring_of
from syncline.bench.sweep import program_of
from syncline.codec.scheme import scheme
from syncline.errors import BenchError, SynclineError
from syncline.fabric import Fabric, load
from syncline.lab import Lab
from syncline.program import Placement, place
from syncline.schedule import Kind
from syncline.sim.emulated_step import Exchanged, Machine, Ring, Work, predict_step
from syncline.sim.emulation import HostCosts, Script, Wiring, predict, script_of
from syncline.sim.host_fit import Fit, Point, fit

SCORED_FROM_S = 0.02
"""Shorter operations are shown but not scored: a busy machine's scheduler moves them by as much as they last."""


@dataclass(frozen=True)
class OperationRow:
    """One collective at one size: what was predicted, and the median and the extremes of what was measured."""

    algorithm: str
    size_bytes: int
    predicted_s: float
    measured_s: float
    low_s: float
    high_s: float
    calibrated_on: bool

    @property
    def gap(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def scored(self) -> bool:
        """Whether it counts: not fitted to, and long enough to be told apart from the scheduler's noise."""
        return not self.calibrated_on and self.measured_s >= SCORED_FROM_S


@dataclass(frozen=True)
class StepRow:
    """One synchronisation: the step as predicted and as measured, the bytes a rank sent, and the loss it ended with."""

    synchronisation: str
    predicted_s: float
    measured_s: float
    low_s: float
    high_s: float
    wire_bytes: float
    loss: float

    @property
    def gap(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What came of it."""

    cluster: str
    num_ranks: int
    scale: float
    fit: Fit
    operations: tuple[OperationRow, ...]
    skipped: dict[str, str]
    steps: tuple[StepRow, ...]
    work: Work
    machine: Machine
    trained: dict[str, list[float]]
    notes: tuple[str, ...]

    @property
    def recommended(self) -> StepRow:
        """The synchronisation that was fastest, of those whose loss stayed with plain DDP's."""
        plain = next((row.loss for row in self.steps if row.synchronisation == PLAIN), None)
        sound = [row for row in self.steps if plain is None or row.loss <= plain * 1.05 + 0.02]
        return min(sound or self.steps, key=lambda row: row.measured_s)

    def largest(self) -> OperationRow | StepRow | None:
        """Return the scored row with the largest gap."""
        rows: list[OperationRow | StepRow] = [*(row for row in self.operations if row.scored), *self.steps]
        return max(rows, key=lambda row: abs(row.gap), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        gaps = [abs(row.gap) for row in self.operations if row.scored]
        return {
            "cluster": self.cluster, "ranks": self.num_ranks, "rates_scaled_by": self.scale,
            "calibration": {**self.fit.costs.to_json(), "median_error": self.fit.median_error,
                            "worst_error": self.fit.worst_error},
            "operations": [_row(row) | {"algorithm": row.algorithm, "size_bytes": row.size_bytes,
                                        "calibrated_on": row.calibrated_on, "scored": row.scored}
                           for row in self.operations],
            "operation_gap": {"median": statistics.median(gaps) if gaps else None, "worst": max(gaps, default=None),
                              "scored": len(gaps)},
            "skipped": self.skipped,
            "steps": [_row(row) | {"synchronisation": row.synchronisation, "wire_bytes": row.wire_bytes,
                                   "loss": row.loss} for row in self.steps],
            "recommended": self.recommended.synchronisation if self.steps else None,
            "trained": self.trained, "notes": list(self.notes),
        }  # fmt: skip


def _row(row: OperationRow | StepRow) -> dict[str, Any]:
    return {"predicted_s": row.predicted_s, "measured_s": row.measured_s, "low_s": row.low_s, "high_s": row.high_s,
            "gap": row.gap}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Stage:
    """An open lab with what is needed to predict on it and to run in it."""

    lab: Lab
    wiring: Wiring
    placement: Placement
    cluster: str
    folder: Path

    def run(self, module: str, order: dict[str, Any], timeout_s: float) -> Any:
        """Give every rank an order and return what rank 0 wrote."""
        paper, answer = self.folder / "order.json", self.folder / "answer.json"
        paper.write_text(json.dumps({"cluster": self.cluster, "ranks": self.placement.num_ranks, **order}), "utf-8")
        answer.unlink(missing_ok=True)
        command = [sys.executable, "-m", f"syncline.bench.rehearsal.{module}", str(paper), str(answer)]
        result = self.lab.run(command, timeout_s=timeout_s, num_ranks=self.placement.num_ranks)
        if result.exit_code or not answer.exists():
            failed = next((rank for rank in result.ranks if rank.exit_code), result.ranks[0])
            raise BenchError(f"rank {failed.rank} of the rehearsal failed with status {failed.exit_code}.",
                             detail=failed.stderr[-1500:])  # fmt: skip
        return json.loads(answer.read_text("utf-8"))


@contextmanager
def _open(cluster: str, scale: float | None, hosts: int | None, tell: Callable[[str], None]) -> Iterator[_Stage]:
    """Build the lab of a cluster, with a folder for orders and answers; both are gone afterwards."""
    fabric = load(cluster)
    with tempfile.TemporaryDirectory() as folder, Lab(fabric, scale=scale, hosts=hosts) as lab:
        tell(f"{len(lab.host_names)} hosts, rates scaled by {lab.blueprint.scale:g}")
        yield _Stage(lab, wiring_of(lab), _seats(fabric, lab), str(_absolute(cluster)), Path(folder))


def measure_programs(
    cluster: str,
    job: Job,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
    timeout_s: float = 900.0,
) -> tuple[Fit, tuple[OperationRow, ...], int]:
    """Run the collectives of a job alone: the fit, every operation, and the number of ranks."""
    with _open(cluster, scale, hosts, tell) as stage:
        fitted, rows, _ = _programs(stage, job, tell, timeout_s)
        return fitted, rows, stage.placement.num_ranks


def rehearse(
    cluster: str,
    job: Job,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
    timeout_s: float = 900.0,
) -> Rehearsal:
    """Build the lab of a cluster, calibrate, predict, run, compare, and train with the best synchronisation."""
    with _open(cluster, scale, hosts, tell) as stage:
        fitted, operations, skipped = _programs(stage, job, tell, timeout_s)
        tell("training under " + ", ".join(job.synchronisations))
        answer = stage.run("training", _training(job, job.synchronisations, job.steps), timeout_s)
        steps, work, machine = _steps(stage, answer, fitted.costs)
        found = Rehearsal(
            stage.placement.fabric.name, stage.placement.num_ranks, stage.lab.blueprint.scale, fitted, operations,
            skipped, steps, work, machine, {row["synchronisation"]: row["losses"] for row in answer["rows"]},
            stage.lab.notes,
        )  # fmt: skip
        if job.train_steps:
            best = found.recommended.synchronisation
            tell(f"training {job.train_steps} steps with {best}")
            longer = stage.run("training", _training(job, (best,), job.train_steps), timeout_s)
            found.trained[best] = longer["rows"][0]["losses"]
    return found


def _programs(
    stage: _Stage, job: Job, tell: Callable[[str], None], timeout_s: float
) -> tuple[Fit, tuple[OperationRow, ...], dict[str, str]]:
    scripts, skipped = _scripts(stage, job)
    tell(f"running {len(scripts)} collectives {job.repeats} times each")
    rows = stage.run("worker", {"operations": [order for order, _ in scripts]}, timeout_s)
    return *_compare(job, scripts, rows), skipped


def _absolute(cluster: str) -> Path | str:
    path = Path(cluster)
    return path.resolve() if path.exists() else cluster


def _seats(fabric: Fabric, lab: Lab) -> Placement:
    """Return one rank a host, in the order of hosts."""
    count = len(lab.host_names)
    return place("spread", fabric, count)


def _scripts(stage: _Stage, job: Job) -> tuple[list[tuple[dict[str, Any], Script]], dict[str, str]]:
    """Return what will be run with how it is priced, and the algorithms that this cluster cannot run, with why."""
    scripts, skipped = [], {}
    for algorithm in job.algorithms:
        try:
            program = program_of(algorithm, Kind.ALL_REDUCE, stage.placement, "gloo")
        except SynclineError as error:
            skipped[algorithm] = error.message
            continue
        for size in sorted({*job.sizes, *job.calibrate_on}):
            order = {"algorithm": algorithm, "kind": Kind.ALL_REDUCE.value, "size_bytes": size, "repeats": job.repeats}
            scripts.append((order, script_of(program, size, stage.wiring)))
    return scripts, skipped


def _compare(
    job: Job, scripts: Sequence[tuple[dict[str, Any], Script]], rows: Sequence[dict[str, Any]]
) -> tuple[Fit, tuple[OperationRow, ...]]:
    wrong = [row for row in rows if row["num_wrong"]]
    if wrong:
        raise BenchError(
            f"{wrong[0]['algorithm']} gave {wrong[0]['num_wrong']} wrong elements: nothing can be compared."
        )
    middle = [statistics.median(row["times_s"]) for row in rows]
    points = [Point(script, time_s) for (order, script), time_s in zip(scripts, middle, strict=True)
              if order["size_bytes"] in job.calibrate_on]  # fmt: skip
    fitted = fit(points)
    operations = tuple(
        OperationRow(
            order["algorithm"], order["size_bytes"], predict(script, fitted.costs), time_s, min(row["times_s"]),
            max(row["times_s"]), order["size_bytes"] in job.calibrate_on,
        )
        for (order, script), row, time_s in zip(scripts, rows, middle, strict=True)
    )  # fmt: skip
    return fitted, operations


def _training(job: Job, names: Sequence[str], steps: int) -> dict[str, Any]:
    return {"model": job.model.model_dump(), "synchronisations": list(names), "steps": steps}


def _steps(stage: _Stage, answer: dict[str, Any], costs: HostCosts) -> tuple[tuple[StepRow, ...], Work, Machine]:
    """Price every synchronisation from what its parts cost, beside what was measured."""
    found = answer["costs"]
    work = Work(found["forward_s"], tuple(found["backward_s"]), tuple(answer["elements"]), found["optimizer_s"])
    machine = Machine(float(answer["cores"]), found["byte_s"], found["message_s"])
    rows = []
    for row in answer["rows"]:
        name = row["synchronisation"]
        how: Exchanged | Ring = Ring(costs.add_s_per_byte * 4)
        if name != PLAIN:
            how = Exchanged(name, scheme(name).wire_bytes, **answer["codecs"][name])
        predicted = predict_step(work, how, stage.wiring, machine, costs)
        times = row["times_s"]
        last = statistics.fmean(row["losses"][-3:])
        rows.append(StepRow(name, predicted, row["step_s"], min(times), max(times), row["wire_bytes"], last))
    return tuple(rows), work, machine
