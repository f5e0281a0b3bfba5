"""Predicted against published: every row of a results file, by system and size band, plain, calibrated and left out.

    result = validate_collectives()                        # the rows that ship with syncline
    result = validate_collectives("my.csv", "my-systems.yaml")
    result.errors.overall.median_error

Error is |predicted time / measured time - 1|. Rows that cannot be modelled are listed with the reason, never dropped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.model import reported
from syncline.errors import SynclineError
from syncline.sim.nccl.constants import NcclConstants, default_constants, left_out_constants
from syncline.sim.nccl.interval import BANDS, band, generation_of, reach_of
from syncline.sim.nccl.measured import OPS, MeasuredRow, Series, read_rows, read_text
from syncline.sim.nccl.predict import predict
from syncline.sim.nccl.system import MAX_POINT_HOSTS
from syncline.sim.swept import calibration_of, pick_six, seen_in
from syncline.validation.systems import SystemReading, Systems, load_systems, shipped

Floats = npt.NDArray[np.float64]
LARGE_BYTES = 2**28
SHIPPED = "nccl-tests.csv.gz"


@dataclass(frozen=True)
class ValidatedRow:
    """One row with everything predicted for it; a ratio is predicted over measured."""

    row: MeasuredRow
    ratio: float
    left_out_ratio: float
    low: float
    high: float
    algorithm: str
    spike: bool
    low50: float = 0.0
    high50: float = math.inf
    generation: str = ""
    reach: str = "one"
    stated: str = "described"
    calibrated_ratio: float | None = None
    left_out_calibrated_ratio: float | None = None
    interpolated_ratio: float | None = None

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the 90 % interval."""
        return self.low <= 1.0 <= self.high

    @property
    def half_covered(self) -> bool:
        """Whether the measurement lies in the 50 % interval."""
        return self.low50 <= 1.0 <= self.high50


@dataclass(frozen=True)
class SkippedRows:
    """Rows that were not predicted, and why."""

    reason: str
    system: str
    lines: tuple[int, ...]

    @reported
    def rows(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Errors:
    """How far off some rows are."""

    scored: int
    median_error: float | None
    p90_error: float | None


@dataclass(frozen=True)
class BandedErrors(Errors):
    """The same by size."""

    by_band: Mapping[str, Errors]


@dataclass(frozen=True)
class LeftOutErrors(BandedErrors):
    """By constants that were fitted without the system."""

    large: Errors
    calibrated: Errors


@dataclass(frozen=True)
class FarErrors(Errors):
    """Beyond 64 hosts, where the interval is what is promised."""

    coverage: float | None


@dataclass(frozen=True)
class PointErrors(BandedErrors):
    """All figures of a set of rows."""

    modelled: int
    large: Errors
    """From 256 MiB."""
    without_spikes: Errors
    calibrated: BandedErrors
    """After calibration on six sizes."""
    interpolated: Errors
    """By interpolation of the same six."""
    left_out: LeftOutErrors
    coverage: float | None
    half_coverage: float | None
    beyond_64_hosts: FarErrors


@dataclass(frozen=True)
class AllErrors(PointErrors):
    """Every row of the file."""

    rows: int


@dataclass(frozen=True)
class SystemErrors(AllErrors):
    """The rows of one system, and what its description leaves open."""

    remarks: tuple[str, ...]


@dataclass(frozen=True)
class CollectiveFigures:
    """What `validate collectives --json` prints."""

    source: str
    overall: AllErrors
    systems: Mapping[str, SystemErrors]
    unmodelled: tuple[SkippedRows, ...]
    error: str = "abs(predicted time / measured time - 1)"
    bands: str = "XS to 4 KiB, S to 256 KiB, M below 256 MiB, L from 256 MiB; all of up to 64 hosts"


@dataclass(frozen=True)
class Validation:
    """All points of a results file, ready to be scored."""

    source: str
    num_rows: int
    points: tuple[ValidatedRow, ...]
    unmodelled: tuple[SkippedRows, ...]
    remarks: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def systems(self) -> list[str]:
        """The systems in the order of the file."""
        seen = [p.row.system for p in self.points] + [u.system for u in self.unmodelled]
        return list(dict.fromkeys(seen))

    @property
    def errors(self) -> CollectiveFigures:
        """Errors of all rows and of each system."""
        lost: dict[str, int] = defaultdict(int)
        for item in self.unmodelled:
            lost[item.system] += item.rows
        systems = {}
        for name in self.systems():
            mine = [p for p in self.points if p.row.system == name]
            systems[name] = SystemErrors(
                rows=len(mine) + lost[name], remarks=self.remarks.get(name, ()), **vars(score(mine))
            )
        overall = AllErrors(rows=self.num_rows, **vars(score(self.points)))
        return CollectiveFigures(self.source, overall, systems, self.unmodelled)


def score(points: Sequence[ValidatedRow]) -> PointErrors:
    """Return the figures of a set of points: errors up to 64 hosts, the interval's coverage beyond."""
    near = [p for p in points if p.row.num_hosts <= MAX_POINT_HOSTS]
    far = [p for p in points if p.row.num_hosts > MAX_POINT_HOSTS]
    large = [p for p in near if p.row.size_bytes >= LARGE_BYTES]
    return PointErrors(
        **vars(_banded(near, lambda p: p.ratio)),
        modelled=len(points),
        large=_errors(large, lambda p: p.ratio),
        without_spikes=_errors([p for p in near if not p.spike], lambda p: p.ratio),
        calibrated=_banded(near, lambda p: p.calibrated_ratio),
        interpolated=_errors(near, lambda p: p.interpolated_ratio),
        left_out=LeftOutErrors(
            **vars(_banded(near, lambda p: p.left_out_ratio)),
            large=_errors(large, lambda p: p.left_out_ratio),
            calibrated=_errors(near, lambda p: p.left_out_calibrated_ratio),
        ),
        coverage=_coverage(near),
        half_coverage=sum(p.half_covered for p in near) / len(near) if near else None,
        beyond_64_hosts=FarErrors(**vars(_errors(far, lambda p: p.ratio)), coverage=_coverage(far)),
    )


Ratio = Callable[[ValidatedRow], float | None]


def _errors(points: Iterable[ValidatedRow], ratio: Ratio) -> Errors:
    values = [abs(r - 1) for p in points if (r := ratio(p)) is not None]
    if not values:
        return Errors(0, None, None)
    median, p90 = np.quantile(values, [0.5, 0.9])
    return Errors(len(values), float(median), float(p90))


def _banded(points: Sequence[ValidatedRow], ratio: Ratio) -> BandedErrors:
    bands = band(np.array([p.row.size_bytes for p in points])) if points else ()
    by_band = {
        name: _errors([p for p, b in zip(points, bands, strict=True) if b == i], ratio) for i, name in enumerate(BANDS)
    }
    return BandedErrors(**vars(_errors(points, ratio)), by_band=by_band)


def _coverage(points: Sequence[ValidatedRow]) -> float | None:
    return sum(p.covered for p in points) / len(points) if points else None


def validate_collectives(data: str | Path | None = None, systems: str | Path | None = None) -> Validation:
    """Predict every row of a results file and compare; default: the published rows that ship."""
    text, name = (shipped(SHIPPED), "published nccl-tests rows") if data is None else (read_text(data), str(data))
    return validate_rows(read_rows(text, name), load_systems(systems), name)


def validate_rows(rows: Sequence[MeasuredRow], systems: Systems, source: str) -> Validation:
    """Predict these rows and compare, beside what constants fitted without a system say of it."""
    left_out = left_out_constants()
    groups, unmodelled, remarks = sweeps(rows, systems)
    points: list[ValidatedRow] = []
    for described, series_rows in groups:
        points += _compare(described, series_rows, left_out.get(series_rows[0].system))
    reasons = [SkippedRows(reason, system, tuple(lines)) for (reason, system), lines in unmodelled.items()]
    return Validation(
        source, len(rows), tuple(points), tuple(reasons), {k: tuple(dict.fromkeys(v)) for k, v in remarks.items()}
    )


def sweeps(
    rows: Sequence[MeasuredRow], systems: Systems
) -> tuple[list[tuple[SystemReading, list[MeasuredRow]]], dict[tuple[str, str], list[int]], dict[str, list[str]]]:
    """Sort rows into sweeps (one operation on one system in one run), and those that cannot be modelled by reason."""
    found: dict[tuple[Any, ...], tuple[SystemReading, list[MeasuredRow]]] = {}
    lost: dict[tuple[str, str], list[int]] = defaultdict(list)
    remarks: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        try:
            _check(row)
            described = systems.of(row)
        except SynclineError as error:
            lost[error.message, row.system].append(row.line)
            continue
        if described.remark:
            remarks[row.system].append(described.remark)
        row = replace(row, num_hosts=described.system.num_hosts)
        key = (row.system, row.op, row.num_gpus, row.num_hosts, row.source, id(described))
        found.setdefault(key, (described, []))[1].append(row)
    return [(d, sorted(r, key=lambda x: x.size_bytes)) for d, r in found.values()], lost, remarks


def _check(row: MeasuredRow) -> None:
    if row.problem:
        raise SynclineError(row.problem)
    if row.size_bytes < 0 or row.time_us < 0:
        raise SynclineError("a size or a time is negative")
    if row.size_bytes == 0:
        raise SynclineError("size is 0: rounded down per rank, nothing was moved")
    if row.time_us == 0:
        raise SynclineError("no time was published, and no bandwidth to derive it from")
    if not 1 <= row.size_bytes <= 2**50 or not 0.01 <= row.time_us <= 1e11:
        raise SynclineError("a size above 1 PiB, or a time below 10 ns or above a day, is not a measurement")
    if row.num_gpus < 2:
        raise SynclineError("a collective needs at least two GPUs")
    if row.op not in OPS:
        raise SynclineError(f'operation "{row.op}" is not modelled')


def _compare(
    described: SystemReading, rows: Sequence[MeasuredRow], without: NcclConstants | None
) -> list[ValidatedRow]:
    op, sizes = rows[0].op, np.array([r.size_bytes for r in rows])
    measured = np.array([r.time_us for r in rows])
    own, other = default_constants(), without or default_constants()
    plain = predict(described.system, op, sizes)
    left_out = predict(described.system, op, sizes, constants=other).time_us / measured
    six = np.isin(sizes, pick_six(sizes))
    # Fewer than nine sizes leave too little to score beside the six that calibrate.
    scored = ~six & (described.calibrate and len(np.unique(sizes)) >= 9)
    series = Series.of(op, zip(sizes[six], measured[six], strict=True))
    calibrated = {
        name: _calibrated(described, series, sizes, c) / measured for name, c in (("own", own), ("other", other))
    }
    line = np.exp(_line(np.log(sizes), np.log(series.sizes), np.log(series.time_us))) / measured
    marks = spikes(measured)
    return [
        ValidatedRow(
            row=rows[i],
            ratio=float(plain.time_us[i] / measured[i]),
            left_out_ratio=float(left_out[i]),
            low=float(plain.low_us[i] / measured[i]),
            high=float(plain.high_us[i] / measured[i]),
            algorithm="/".join(plain.pairs[i]),
            spike=bool(marks[i]),
            low50=float(plain.low50_us[i] / measured[i]),
            high50=float(plain.high50_us[i] / measured[i]),
            generation=generation_of(described.system),
            reach=reach_of(described.system),
            stated="guessed" if described.guessed else "described",
            calibrated_ratio=float(calibrated["own"][i]) if scored[i] else None,
            left_out_calibrated_ratio=float(calibrated["other"][i]) if scored[i] else None,
            interpolated_ratio=float(line[i]) if scored[i] else None,
        )
        for i in range(len(rows))
    ]


def _calibrated(described: SystemReading, six: Series, sizes: Floats, constants: NcclConstants) -> Floats:
    seen = seen_in(described.system, six, constants)
    calibration = calibration_of(seen, six.op, described.system.num_hosts)
    return predict(described.system, six.op, sizes, constants=constants, calibration=calibration).time_us


def _line(x: Floats, knots: Floats, values: Floats) -> Floats:
    """Interpolate linearly; flat below the smallest size (latency), in proportion above the largest (bandwidth)."""
    return np.asarray(np.interp(x, knots, values) + np.maximum(x - knots[-1], 0))


def spikes(measured: Floats) -> npt.NDArray[np.bool_]:
    """Mark sizes that took 25 % longer than one of the next two larger sizes, and the first of a long log (warm-up)."""
    marks = np.zeros(len(measured), dtype=bool)
    for i in range(len(measured) - 1):
        marks[i] = measured[i] > 1.25 * measured[i + 1 : i + 3].min()
    if len(measured) > 10:
        marks[0] = True
    return marks
