"""Calibration: a short sweep, the costs of hosts that explain it, and a cluster file that remembers them.

fitted = calibrate_lab("cluster.yaml", Sweep(), scale=0.1)         # on an emulated copy
fitted = calibrate_live(group, placement, Sweep())                 # on the ranks that were launched, any cluster
write_calibrated(spec, fitted, ranks=8, measured="...", path=Path("calibrated.yaml"))
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syncline.bench.sweep import program_of
from syncline.errors import SynclineError
from syncline.fabric.load import save
from syncline.fabric.spec import Calibration, ClusterSpec
from syncline.program import Placement
from syncline.rehearsal.job import RehearsalJob
from syncline.rehearsal.rehearse import OperationRow, measure_programs
from syncline.runtime.execute.executor import Executor
from syncline.runtime.execute.trial import measure
from syncline.runtime.group import Group
from syncline.schedule import Kind
from syncline.sim.emulate.emulation import predict, script_of, wiring_of_fabric
from syncline.sim.emulate.host_fit import Fit, TimedOperation, fit


@dataclass(frozen=True)
class CalibrationSweep:
    """What is measured for a calibration."""

    algorithms: tuple[str, ...] = ("ring", "halving-doubling", "direct", "tree")
    sizes: tuple[int, ...] = (1 << 17, 1 << 19, 1 << 21)
    repeats: int = 5


@dataclass(frozen=True, eq=False)
class HostCalibration:
    """Fitted costs, and every point they were fitted to."""

    fit: Fit
    rows: tuple[OperationRow, ...]
    num_ranks: int


def calibrate_lab(
    cluster: str,
    sweep: CalibrationSweep,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> HostCalibration:
    """Return the costs of an emulated copy of a cluster."""
    # A size that is not fitted to shows whether the fit holds beyond its points.
    beyond = max(sweep.sizes) * 2
    job = RehearsalJob(algorithms=sweep.algorithms, sizes=(beyond,), calibrate_on=sweep.sizes, repeats=sweep.repeats)
    fitted, rows, num_ranks = measure_programs(cluster, job, scale=scale, hosts=hosts, tell=tell)
    return HostCalibration(fitted, rows, num_ranks)


def calibrate_live(
    group: Group, placement: Placement, sweep: CalibrationSweep, *, tell: Callable[[str], None] = lambda text: None
) -> HostCalibration:
    """Return the costs of the hosts that the ranks of a group run on; every rank calls this and gets the same."""
    wiring = wiring_of_fabric(placement)
    points, sizes = [], []
    with Executor(group) as executor:
        for algorithm in sweep.algorithms:
            try:
                program = program_of(algorithm, Kind.ALL_REDUCE, placement, group.backend)
            except SynclineError:
                continue  # this number of ranks cannot run it
            for size in sweep.sizes:
                tell(f"{algorithm}, {size:,} bytes")
                trial = measure(executor, program, size, repeats=sweep.repeats)
                times = trial.rank_s.max(axis=0)
                points.append(
                    TimedOperation(script_of(program, size, wiring), float(statistics.median(times.tolist())))
                )
                sizes.append((algorithm, size, float(times.min()), float(times.max())))
    fitted = fit(points)
    rows = tuple(
        OperationRow(name, size, predict(point.script, fitted.costs), point.time_s, low, high, True)
        for point, (name, size, low, high) in zip(points, sizes, strict=True)
    )
    return HostCalibration(fitted, rows, group.size)


def write_calibrated(spec: ClusterSpec, found: HostCalibration, measured: str, path: Path) -> ClusterSpec:
    """Write the cluster file with its calibration and return what was written."""
    costs = {name: float(f"{value:.4g}") for name, value in found.fit.costs.to_json().items()}
    kept = Calibration(
        **costs, ranks=found.num_ranks, median_error=round(found.fit.median_error, 5),
        worst_error=round(found.fit.worst_error, 5), measured=measured,
    )  # fmt: skip
    calibrated = spec.model_copy(update={"calibration": kept})
    save(calibrated, path)
    return calibrated
