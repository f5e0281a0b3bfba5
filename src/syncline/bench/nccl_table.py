"""The table that nccl-tests and rccl-tests print, as measurements.

Tables are read as they arrive in the world: with the prefixes of mpirun, srun, kubectl and Ray, with or without "#",
NCCL's own log lines in between, several tables in one file. Columns differ by release and by collective:

    until 2018   bytes N type op             time in ms, algbw, busbw, res
    until 2021   size count type [redop] [root]    time in us, algbw, busbw, error
    since        size count type redop root        time in us, algbw, busbw, #wrong [i_min i_max i_p99 i_cv%]

each twice: out of place and in place; -S adds the time of day at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.bench.measured import Measurement, Timing, bus_factor
from syncline.bench.nccl_run import Device, NcclTestRun, is_amd, program_in
from syncline.describe import units
from syncline.errors import BenchError
from syncline.schedule.collective import Kind

_PREFIX = (
    r"(?:[ \t]{0,8}(?:\([^)\n]{1,80}\)[ \t]*|\[[^\]\n]{1,120}\](?:<\w{1,12}>)?:?[ \t]*|[\w.-]{1,80}:[ \t]+"
    r"|\d{4}-\d\d-\d\dT\S{1,40}[ \t]+(?:std\w{3} F )?)){0,3}"
)
_ROW = re.compile(
    rf"^{_PREFIX}[ \t]*(?P<size>\d{{1,20}})[ \t]+(?P<count>\d{{1,20}})[ \t]+(?P<type>[a-z]\w*)[ \t]+(?P<rest>\S.*)$"
)
_LIKE_A_ROW = re.compile(rf"^{_PREFIX}[ \t]*[1-9]\w*(?:[ \t]+\d\w*[ \t]+\S.*|[ \t]+\d*[ \t]*)?$")
"""A size and a count before anything else, however damaged, or a line cut off within them."""
_HEAD = re.compile(r"\b(?:count|N)[ \t]+type\b")
_MOST_NAMED = 8
_DEVICE = re.compile(
    r"Rank[ \t]+(?P<rank>\d{1,9})(?:[ \t]+Group[ \t]+\d+)?(?:[ \t]+Pid[ \t]+\d+)?[ \t]+(?:uses|on[ \t]+(?P<host>\S+))"
    r"[ \t]+device[ \t]+(?P<device>\d{1,9})[ \t]+\[[^\]]*\][ \t]*(?P<name>.*)"
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\Z", re.IGNORECASE)
_VERSION = re.compile(r"(?:NCCL|RCCL) version[ :]+(\d[\w.+-]*)|nccl-library=(\d+)", re.IGNORECASE)
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values[ \t]*:[ \t]*(\d{1,18})")
_TIME_OF_DAY = re.compile(r"[ \t]+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[ \t]*$")
_IN_MS = re.compile(r"#[ \t]+bytes[ \t]+N[ \t]+type")
_OLD_ERROR = re.compile(r"busbw[ \t]+(?:error|res)\b")
_PARTS = {4: (4,), 7: (4, 3), 8: (4, 4), 16: (8, 8)}
"""Cells of a line -> cells of each part. The last column is often lost when a table is copied from a terminal."""
_NOT_RUN = ("N/A", "NA", "-")
_FIT = 0.05
_REDUCTIONS = ("sum", "prod", "min", "max", "avg")


@dataclass(frozen=True)
class _Columns:
    """How the columns of a text are to be read."""

    unit_s: float
    has_counts: bool
    """Whether the last column counts wrong elements; in old releases it is the largest error."""


@dataclass(frozen=True)
class _Row:
    """One line, taken apart."""

    size_bytes: int
    num_elements: int
    dtype: str
    redop: str
    root: int
    parts: tuple[tuple[str, ...], ...]
    line: int = 0

    @property
    def ratio(self) -> float | None:
        """Busbw over algbw of a line that is fast enough to tell."""
        cells = [number(cell) for cell in self.parts[0][1:3]]
        return cells[1] / cells[0] if cells[0] and cells[1] and cells[0] > 1 else None


def read_table(text: str, where: str, kind: Kind | None, num_ranks: int) -> NcclTestRun:
    """Return the run that a text holds; `kind` and `num_ranks` where the log does not say them."""
    lines = text.splitlines()
    columns = _Columns(1e-3 if _IN_MS.search(text) else 1e-6, not _OLD_ERROR.search(text))
    found = [row for at, line in enumerate(lines, start=1) if (row := _row(line, at)) is not None]
    if not found:
        raise BenchError("no result line of nccl-tests was found.", where=where,
                         hint="Give the output of all_reduce_perf, say, or its -J file.")  # fmt: skip
    if num_ranks > 1 or sum(_DEVICE.search(line) is not None for line in lines) > 1:
        _refuse_lone_processes(found, where)
    devices = _devices(lines)
    kind = kind or program_in(text) or _kind_of(found)
    named = max(len(devices), devices[-1].rank + 1) if devices else 0  # of some logs only some lines were kept
    ranks = num_ranks or named or _ranks_from_bandwidths(found, kind)
    if kind is None:
        raise BenchError("the log does not say which collective ran.", where=where, hint="Name it with --collective.")
    rows = tuple(one for row in found for one in _measured(row, kind, ranks, columns))
    if not rows:
        raise BenchError(
            "no result line of nccl-tests has a time.", where=where, hint="Give the output of a run that finished."
        )
    if not ranks:
        raise BenchError("the log does not say how many ranks ran.", where=where, hint="Give --ranks.")
    library = "rccl" if is_amd(devices) or "RCCL" in text or "rccl-tests" in text else "nccl"
    return NcclTestRun(
        kind, ranks, rows, devices, _version(text), library,
        (*_notes(text), *_unread(lines, found), *_left_out(found), *_odd_bandwidths(found, kind, ranks)),
    )  # fmt: skip


def number(cell: str) -> float | None:
    """Return a cell's number, or None where it holds none."""
    return float(cell) if _NUMBER.match(cell) else None


def release(code: int) -> str:
    """Return NCCL's version code in its own words: 22703 is 2.27.3, 2708 is 2.7.8."""
    big = 10_000 if code >= 10_000 else 1000
    return f"{code // big}.{code % big // 100}.{code % 100}"


def _version(text: str) -> str:
    found = _VERSION.search(text)
    if found is None:
        return ""
    return found[1] or release(int(found[2][:8]))


def _notes(text: str) -> Iterator[str]:
    bounds = _OUT_OF_BOUNDS.search(text)
    if bounds and int(bounds.group(1)):
        yield f"the log itself counts {int(bounds.group(1))} values out of bounds"
    if "Avg bus bandwidth" not in text:
        yield "the run did not end: there is no average at the end of the log"


def _unread(lines: list[str], rows: list[_Row]) -> Iterator[str]:
    """Say how many lines of the table look like results and are none that can be read, and which."""
    known = {row.line for row in rows}
    head = next((at for at, line in enumerate(lines, start=1) if _HEAD.search(line)), rows[0].line)
    table = enumerate(lines[head:], start=head + 1)
    damaged = [at for at, line in table if at not in known and _LIKE_A_ROW.match(line.rstrip("\r"))]
    if damaged:
        named = ", ".join(map(str, damaged[:_MOST_NAMED]))
        more = f" and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
        yield f"{len(damaged)} damaged result line{'s' * (len(damaged) > 1)} left out: line {named}{more}"


def _left_out(rows: list[_Row]) -> Iterator[str]:
    """Say which times were left out; a part that was not run (N/A) is no mistake."""
    for row in rows:
        for part, name in zip(row.parts, ("out of place", "in place"), strict=False):
            time = number(part[0])
            if part[0].upper() not in _NOT_RUN and (time is None or time <= 0):
                size = units.show_size(row.size_bytes)
                yield f"line {row.line} left out: the time of {size} {name} is {part[0]}, not a number above 0"


def _refuse_lone_processes(rows: list[_Row], where: str) -> None:
    """Refuse a run of which every process was alone: a build without MPI prints a busbw of 0 whatever was moved."""
    pairs = [[number(cell) for cell in row.parts[0][1:3]] for row in rows]
    timed = [(algbw, busbw) for algbw, busbw in pairs if algbw and algbw > 1 and busbw is not None]
    if timed and all(busbw == 0 for _, busbw in timed):
        raise BenchError(
            "every process ran alone: busbw is 0.00 in all lines, so nothing was sent between ranks.",
            where=where,
            hint="Build nccl-tests with MPI=1 (rccl-tests: -DENABLE_MPI=ON) and start it with mpirun or srun --mpi.",
        )


def _odd_bandwidths(rows: list[_Row], kind: Kind, num_ranks: int) -> Iterator[str]:
    """Say where the busbw that is printed is not the one that algbw, collective and ranks give."""
    wanted = bus_factor(kind, num_ranks)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    odd = [ratio for ratio in ratios if abs(ratio / wanted - 1) > _FIT] if wanted else []
    if ratios and len(odd) > len(ratios) / 2:
        yield (f"the printed busbw is {odd[0]:.2f} times algbw, where {kind.value} of {num_ranks} ranks makes it "
               f"{wanted:.2f}: the ranks or the collective are not what the log says")  # fmt: skip


def _devices(lines: list[str]) -> tuple[Device, ...]:
    """Return the ranks named, each once; some launches print every rank as rank 0 of its own run."""
    found: dict[tuple[int, str, int], Device] = {}
    for line in lines:
        match = _DEVICE.search(line)
        if match:
            device = Device(int(match["rank"]), match["host"] or "", int(match["device"]), match["name"].strip())
            found[device.rank, device.host, device.device] = device
    return tuple(sorted(found.values(), key=lambda device: device.rank))


def _row(line: str, at: int) -> _Row | None:
    match = _ROW.match(_TIME_OF_DAY.sub("", line.rstrip("\r")))
    if match is None or int(match["size"]) <= 0:
        return None
    cells = match["rest"].split()
    redop = cells.pop(0) if cells[0][0].isalpha() else "none"
    has_root = _starts_with_root(cells, int(match["size"]))
    root = int(cells.pop(0)) if has_root else -1
    widths = _PARTS.get(len(cells))
    if widths is None:
        return None
    starts = [sum(widths[:at]) for at in range(len(widths))]
    parts = tuple(tuple(cells[at : at + width]) for at, width in zip(starts, widths, strict=True))
    return _Row(int(match["size"]), int(match["count"]), match["type"], redop, root, parts, at)


def _starts_with_root(cells: list[str], size_bytes: int) -> bool:
    """Say whether the first cell is the root's rank, and not a time: by the number of cells, else by the bandwidth."""
    if not cells or not re.fullmatch(r"-?\d{1,6}", cells[0]):
        return False
    with_root, without = len(cells) - 1 in _PARTS, len(cells) in _PARTS
    return with_root and not (without and _fits(size_bytes, cells[0], cells[1]))


def _fits(size_bytes: int, time: str, algbw: str) -> bool:
    """Say whether a time and a bandwidth belong to one size, in us or ms."""
    took, rate = number(time), number(algbw)
    if not took or not rate or took <= 0 or rate <= 0:
        return False
    expected = size_bytes / took / 1e3
    return any(abs(expected / scale / rate - 1) < _FIT for scale in (1, 1e3))


def _measured(row: _Row, kind: Kind, num_ranks: int, columns: _Columns) -> Iterator[Measurement]:
    for part, in_place in zip(row.parts, (False, True), strict=False):
        time = number(part[0])
        if time is None or time <= 0:
            continue
        wrong = _wrong(part[3], columns.has_counts) if len(part) > 3 else None
        yield Measurement(
            kind, num_ranks, row.size_bytes, Timing.single(time * columns.unit_s), "vendor", row.dtype,
            row.num_elements, row.redop, row.root, wrong, in_place=in_place,
        )  # fmt: skip


def _wrong(cell: str, is_count: bool) -> int | None:
    """Return how many were wrong: a count, or 1 for an `error` of old releases above its tolerance; N/A is unknown."""
    value = number(cell.rstrip("*"))
    if value is None:
        return None
    if is_count and not cell.endswith("*"):
        return int(value)
    return int(cell.endswith("*") or value >= 1)


def _kind_of(rows: list[_Row]) -> Kind | None:
    """Tell an all-reduce by its reduction and its bandwidths, where the program's name is not in the log."""
    reduced = (row for row in rows if row.redop in _REDUCTIONS and (row.ratio or 0) > 1)
    return Kind.ALL_REDUCE if next(reduced, None) else None


def _ranks_from_bandwidths(rows: list[_Row], kind: Kind | None) -> int:
    """Return the ranks that busbw over algbw tells: 2(n-1)/n or (n-1)/n, read from the fastest line."""
    best, ranks = 0.0, 0
    for row in rows:
        ratio = row.ratio
        if not ratio:
            continue
        share = ratio / 2 if kind is Kind.ALL_REDUCE else ratio
        algbw = number(row.parts[0][1]) or 0.0
        if 0 < share < 1 and algbw > best:
            best, ranks = algbw, round(1 / (1 - share))
    return ranks if ranks >= 2 else 0
