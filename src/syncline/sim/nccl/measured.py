"""Measurements as series: rows of a CSV of published results, or a user's own nccl-tests log (text or JSON).

A `Series` is one sweep of sizes on one system: what a calibration is made from and what a prediction is compared with.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.errors import FileError

Floats = npt.NDArray[np.float64]
OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")
_MAX_BYTES = 200_000_000
_COLUMNS = ("source", "system", "gpus", "nodes", "op", "size_bytes", "time_us", "notes")


@dataclass(frozen=True)
class Row:
    """One line of a results CSV."""

    line: int
    source: str
    system: str
    num_gpus: int
    num_hosts: int
    op: str
    size_bytes: float
    time_us: float
    notes: str


@dataclass(frozen=True, eq=False)
class Series:
    """One sweep: sizes in rising order and the time of each."""

    op: str
    sizes: Floats
    time_us: Floats

    @staticmethod
    def of(op: str, points: Iterable[tuple[float, float]]) -> Series:
        """Return the series of (bytes, us) points, sorted, without empty sizes."""
        kept = sorted((s, t) for s, t in points if s > 0 and t > 0)
        return Series(op, np.array([s for s, _ in kept]), np.array([t for _, t in kept]))


def read_text(path: str | Path) -> str:
    """Read a file of measurements, or say why it cannot be read."""
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FileError(f'"{path}" is larger than {_MAX_BYTES:,} bytes.', hint="Give one run's log.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.') from None
    except UnicodeDecodeError:
        raise FileError(f'"{path}" is not text.') from None


def read_rows(text: str, where: str) -> list[Row]:
    """Read rows of the published form: source, system, gpus, nodes, op, size_bytes, time_us, ..., notes."""
    reader = csv.DictReader(StringIO(text))
    missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
    if missing:
        raise FileError(f"column {missing[0]} is missing.", where=where, hint=f"Columns: {', '.join(_COLUMNS)}.")
    return [_row(line, raw, where) for line, raw in enumerate(reader, start=2)]


def _row(line: int, raw: dict[str, Any], where: str) -> Row:
    try:
        return Row(
            line,
            raw["source"] or "",
            raw["system"] or "",
            int(raw["gpus"]),
            int(raw["nodes"]),
            raw["op"],
            float(raw["size_bytes"] or 0),
            float(raw["time_us"] or 0),
            raw["notes"] or "",
        )
    except (TypeError, ValueError) as error:
        raise FileError(f"cannot read the numbers of this row: {error}.", where=f"{where} line {line}") from None


_LOG_LINE = re.compile(
    r"^\s*(?:\[[^\]]*\]\s*)?(\d+)\s+\d+\s+[a-z]\w*\s+\S+\s+-?\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s", re.MULTILINE
)
_OP_IN_LOG = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall|broadcast|reduce|sendrecv)_perf", re.IGNORECASE
)
_OP_NAMES = {name.replace("_", ""): name for name in OPS}


def read_log(text: str, where: str, op: str = "") -> Series:
    """Read a nccl-tests log, its text table or its `-J` JSON; out-of-place times are taken."""
    stripped = text.lstrip()
    series = _read_json(stripped, where, op) if stripped.startswith("{") else _read_table(text, where, op)
    if len(series.sizes) == 0:
        raise FileError(
            "no nccl-tests result line found.", where=where, hint="Give the output of all_reduce_perf, say."
        )
    return series


def _read_table(text: str, where: str, op: str) -> Series:
    named = _OP_IN_LOG.search(text)
    name = op or (_OP_NAMES[named.group(1).lower().replace("_", "")] if named else "")
    return Series.of(_known(name, where), ((float(a), float(b)) for a, b in _LOG_LINE.findall(text)))


def _read_json(text: str, where: str, op: str) -> Series:
    try:
        data = json.loads(text)
        points = [(float(r["size"]), float(r["out_of_place"]["time"])) for r in data["results"]]
        named = _OP_IN_LOG.search(" ".join(str(a) for a in data.get("args", [])))
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"this is not the JSON of nccl-tests -J: {error}.", where=where) from None
    return Series.of(_known(op or (_OP_NAMES[named.group(1).lower().replace("_", "")] if named else ""), where), points)


def _known(op: str, where: str) -> str:
    if op not in OPS:
        raise FileError("the log does not say which operation ran.", where=where, hint=f"Name it: {', '.join(OPS)}.")
    return op
