"""The rehearsal: calibrate on some sizes, predict others and whole training steps, run both, and compare.

found = rehearse("cluster.yaml", Job())
found.operations[0].gap, found.recommended
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from syncline.bench.sweep import program_of
from syncline.codec.names import scheme
from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import BenchError, LabError, SynclineError
from syncline.program.overlap import ExchangeCosts, RingCosts, SharedMachine, StageCosts, Work
from syncline.rehearsal.job import PLAIN, RehearsalJob
from syncline.rehearsal.order import Operation, OperationTimes, SyncTimes, TrainingTimes, WorkTimes
from syncline.rehearsal.shown import TimelinePair, carried, measured
from syncline.rehearsal.stage import RankStage, open_lab, open_loopback
from syncline.schedule import Kind
from syncline.sim.emulate.emulated_step import predict_step, step_timeline
from syncline.sim.emulate.emulation import HostCosts, Script, chronicle, predict, script_of
from syncline.sim.emulate.host_fit import Fit, TimedOperation, fit
from syncline.timeline import Timeline
from syncline.timeline.account import AccountDifference, subtract
from syncline.timeline.account.of_timeline import timeline_account

BEHIND, ALIKE = 0.1, 1e-3
"""Who learns so much less than plain DDP pays for speed with more steps; losses so near each other are alike."""
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


def fastest(steps: Sequence[StepRow], plain: float | None, curve: Sequence[float]) -> StepRow:
    """Return the fastest step of those whose loss came down nearly as far as plain DDP's, whose curve is given."""
    learnt = max(curve[0] - plain, 0.0) if curve and plain is not None else 0.0
    sound = [row for row in steps if plain is None or row.loss <= plain * (1 + ALIKE) + BEHIND * learnt]
    return min(sound or steps, key=lambda row: row.measured_s)


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
    machine: SharedMachine
    trained: dict[str, list[float]]
    notes: tuple[str, ...]
    is_loopback: bool = False
    shown: tuple[TimelinePair, ...] = ()
    links: Timeline | None = None
    """What the links of the lab carried while the recommended synchronisation trained."""

    @property
    def recommended(self) -> StepRow:
        """The synchronisation that was fastest, of those that learnt nearly as much as plain DDP in as many steps."""
        plain = next((row.loss for row in self.steps if row.synchronisation == PLAIN), None)
        return fastest(self.steps, plain, self.trained.get(PLAIN, []))

    @property
    def account(self) -> AccountDifference | None:
        """From the predicted step to the one that is shown beside it, by cause; None where none was trained."""
        if not self.shown:
            return None
        pair = self.shown[-1]
        before = timeline_account(pair.predicted, "predicted", pair.name)
        return subtract(before, timeline_account(pair.measured, "executed", pair.name))

    def largest(self) -> OperationRow | StepRow | None:
        """Return the scored row with the largest gap."""
        rows: list[OperationRow | StepRow] = [*(row for row in self.operations if row.scored), *self.steps]
        return max(rows, key=lambda row: abs(row.gap), default=None)

    def to_json(self) -> JsonObject:
        """Return everything as plain values."""
        gaps = [abs(row.gap) for row in self.operations if row.scored]
        return {
            "cluster": self.cluster, "ranks": self.num_ranks, "rates_scaled_by": self.scale,
            "network": "loopback" if self.is_loopback else "lab",
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
            "account": None if (found := self.account) is None else {
                one.source: {"name": one.name, "step_s": one.step_s, "causes_s": dict(one.causes_s)}
                for one in (found.before, found.after)},
            "trained": self.trained, "notes": list(self.notes),
        }  # fmt: skip


def _row(row: OperationRow | StepRow) -> JsonObject:
    return {"predicted_s": row.predicted_s, "measured_s": row.measured_s, "low_s": row.low_s, "high_s": row.high_s,
            "gap": row.gap}  # fmt: skip


def measure_programs(
    cluster: str,
    job: RehearsalJob,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
    timeout_s: float = 900.0,
) -> tuple[Fit, tuple[OperationRow, ...], int]:
    """Run the collectives of a job alone: the fit, every operation, and the number of ranks."""
    with open_lab(cluster, scale=scale, hosts=hosts) as stage:
        tell(_size(stage))
        scripts, _ = _scripts(stage, job)
        fitted, rows = _programs(stage, job, scripts, tell, timeout_s)
        return fitted, rows, stage.placement.num_ranks


def rehearse(
    cluster: str,
    job: RehearsalJob,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    loopback: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
    timeout_s: float = 900.0,
) -> Rehearsal:
    """Build the lab of a cluster, calibrate, predict, run, compare, and train with the best synchronisation.

    With `loopback`, and where no lab can be made, ranks talk over loopback at a rate that the runtime itself holds;
    `warn` is told so.
    """
    with _open(cluster, scale, hosts, loopback) as stage:
        if stage.is_loopback:
            for note in stage.notes:
                warn(note)
        tell(_size(stage))
        notes = (*stage.notes, *_levels_note(job.levels, stage.placement.num_ranks))
        scripts, skipped = _scripts(stage, job)
        fitted, operations = _programs(stage, job, scripts, tell, timeout_s)
        tell("training under " + ", ".join(job.synchronisations))
        answer: TrainingTimes = stage.run("training", _training(job, job.synchronisations, job.steps), timeout_s, tell)
        steps = tuple(_step(stage, job, row, answer, fitted.costs) for row in answer["rows"])
        work, machine = _work(answer["work"], answer["elements"]), _machine(answer, 1.0, answer["work"]["cores"])
        found = Rehearsal(
            stage.placement.fabric.name, stage.placement.num_ranks, stage.scale, fitted, operations,
            skipped, steps, work, machine, {row["synchronisation"]: row["losses"] for row in answer["rows"]},
            notes, stage.is_loopback,
        )  # fmt: skip
        return _train(stage, job, found, scripts, tell, timeout_s) if job.train_steps else found


def _train(
    stage: RankStage,
    job: RehearsalJob,
    found: Rehearsal,
    scripts: Sequence[_Scripted],
    tell: Callable[[str], None],
    timeout_s: float,
) -> Rehearsal:
    """Train with the recommended synchronisation while links are counted, and keep single runs to be shown."""
    best = found.recommended.synchronisation
    tell(f"training {job.train_steps} steps with {best}")
    largest = [each for each in scripts if each[0]["size_bytes"] == max(job.sizes)]
    order = _training(job, (best,), job.train_steps) | {"programs": [order for order, _ in largest]}
    with stage.counters() as recording:
        longer: TrainingTimes = stage.run("training", order, timeout_s, tell)
    links = None if recording is None else recording.counters.timeline()
    shown = [
        TimelinePair(f"{given['algorithm']} {units.show_size(given['size_bytes'])}", chronicle(script, found.fit.costs),
              measured(run["rows"], links, run["start_s"]))
        for (given, script), run in zip(largest, longer["shown"]["programs"], strict=True)
    ]  # fmt: skip
    work, how, machine = _conditions(stage, job, longer["rows"][0], longer, found.fit.costs)
    predicted = step_timeline(work, how, stage.wiring, machine, found.fit.costs)
    shown.append(TimelinePair(f"training step, {best}", predicted, measured(longer["shown"]["step"], links)))
    whole = None if links is None else carried(links, *longer["shown"]["training_s"])
    trained = found.trained | {best: longer["rows"][0]["losses"]}
    return replace(found, trained=trained, shown=tuple(shown), links=whole)


@contextmanager
def _open(cluster: str, scale: float | None, hosts: int | None, loopback: bool) -> Iterator[RankStage]:
    """Open a lab; where that is not allowed, or not wanted, what stands in for it."""
    with ExitStack() as stack:
        why = ""
        stage: RankStage
        if not loopback:
            try:
                stage = stack.enter_context(open_lab(cluster, scale=scale, hosts=hosts))
            except LabError as error:
                why = error.message
        if loopback or why:
            # What is wrong with the description is wrong here too, and said again.
            stage = stack.enter_context(open_loopback(cluster, scale=scale, hosts=hosts, why=why))
        yield stage


def _size(stage: RankStage) -> str:
    return f"{stage.placement.num_ranks} hosts, rates scaled by {stage.scale:g}"


_Scripted = tuple[Operation, Script]
"""What ranks are told to run, and how it is priced."""


def _programs(
    stage: RankStage, job: RehearsalJob, scripts: Sequence[_Scripted], tell: Callable[[str], None], timeout_s: float
) -> tuple[Fit, tuple[OperationRow, ...]]:
    tell(f"running {len(scripts)} collectives {job.repeats} times each")
    rows = stage.run("operations", {"operations": [order for order, _ in scripts]}, timeout_s, tell)
    return _compare(job, scripts, rows)


def _scripts(stage: RankStage, job: RehearsalJob) -> tuple[list[_Scripted], dict[str, str]]:
    """Return what will be run with how it is priced, and the algorithms that this cluster cannot run, with why."""
    scripts: list[_Scripted] = []
    skipped: dict[str, str] = {}
    for algorithm in job.algorithms:
        try:
            program = program_of(algorithm, Kind.ALL_REDUCE, stage.placement, "gloo")
        except SynclineError as error:
            skipped[algorithm] = error.message
            continue
        for size in sorted({*job.sizes, *job.calibrate_on}):
            order: Operation = {
                "algorithm": algorithm,
                "kind": Kind.ALL_REDUCE.value,
                "size_bytes": size,
                "repeats": job.repeats,
            }
            scripts.append((order, script_of(program, size, stage.wiring)))
    return scripts, skipped


def _compare(
    job: RehearsalJob, scripts: Sequence[_Scripted], rows: Sequence[OperationTimes]
) -> tuple[Fit, tuple[OperationRow, ...]]:
    wrong = [row for row in rows if row["num_wrong"]]
    if wrong:
        raise BenchError(
            f"{wrong[0]['algorithm']} gave {wrong[0]['num_wrong']} wrong elements: nothing can be compared."
        )
    middle = [statistics.median(row["times_s"]) for row in rows]
    points = [TimedOperation(script, time_s) for (order, script), time_s in zip(scripts, middle, strict=True)
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


def _training(job: RehearsalJob, names: Sequence[str], steps: int) -> dict[str, object]:
    order: dict[str, object] = {"model": job.model.model_dump(), "synchronisations": list(names), "steps": steps}
    return order | {"levels": list(job.levels)}


def _levels_note(levels: tuple[int, ...], num_hosts: int) -> tuple[str, ...]:
    """Return what is said of a hierarchy, which must fit the hosts."""
    if not levels:
        return ()
    inside, sizes = math.prod(levels), " x ".join(map(str, levels))
    if num_hosts % inside or num_hosts == inside:
        raise BenchError(
            f"{num_hosts} hosts cannot be divided into several groups of {sizes}.",
            hint="levels are hosts inside each level, innermost first; the job file has them, --hosts their number.",
        )
    return (
        f"Gradients are averaged in levels: float32 inside groups of {sizes} hosts, the codec across "
        f"{num_hosts // inside} of them; plain DDP is not.",
    )


def _step(stage: RankStage, job: RehearsalJob, row: SyncTimes, answer: TrainingTimes, costs: HostCosts) -> StepRow:
    """Price a synchronisation from what its parts cost, beside what was measured."""
    work, how, machine = _conditions(stage, job, row, answer, costs)
    predicted = predict_step(work, how, stage.wiring, machine, costs)
    times, last = row["times_s"], statistics.fmean(row["losses"][-3:])
    return StepRow(row["synchronisation"], predicted, row["step_s"], min(times), max(times), row["wire_bytes"], last)


def _conditions(
    stage: RankStage, job: RehearsalJob, row: SyncTimes, answer: TrainingTimes, costs: HostCosts
) -> tuple[Work, ExchangeCosts | RingCosts, SharedMachine]:
    """Return a rank's work, how gradients travel, and the processors, as fast as they were about that time.

    Over loopback plain DDP is float32 through the runtime.
    """
    name, work = row["synchronisation"], _work(row["work"], answer["elements"])
    slower = work.total_s / _work(answer["work"], answer["elements"]).total_s
    machine = _machine(answer, slower, row["work"]["cores"])
    if name == PLAIN and not stage.is_loopback:
        return work, RingCosts(costs.add_s_per_byte * 4), machine
    pieces = answer["codecs"][name]
    measured = {size: StageCosts(*(slower * each for each in seconds)) for size, *seconds in pieces}
    codec = scheme("fp32" if name == PLAIN else name)
    how = ExchangeCosts(
        name, codec, 0.0, 0.0, measured=measured, message_s=slower * answer["costs"]["post_s"],
        levels=() if name == PLAIN else job.levels, dense_s=slower * answer["costs"].get("dense_s", 0.0),
    )  # fmt: skip
    return work, how, machine


def _work(then: WorkTimes, elements: Sequence[int]) -> Work:
    return Work(then["forward_s"], tuple(then["backward_s"]), tuple(elements), then["optimizer_s"])


def _machine(answer: TrainingTimes, slower: float, cores: float) -> SharedMachine:
    return SharedMachine(cores, slower * answer["costs"]["byte_s"], slower * answer["costs"]["message_s"])
