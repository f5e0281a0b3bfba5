"""Measurements as series: rows of a CSV of published results, or a user's own nccl-tests log (text or JSON).

A `Series` is one sweep of sizes on one system: what a calibration is made from and what a prediction is compared with.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.errors import FileError

COLUMNS = ("source", "system", "gpus", "nodes", "op", "dtype", "size_bytes", "time_us", "algbw_gbps", "busbw_gbps",
           "notes")  # fmt: skip
_OTHER = {
    "source": ("reference", "url", "log", "origin"),
    "system": ("cluster", "machine", "hardware", "platform", "testbed"),
    "gpus": ("gpu", "ranks", "nranks", "np", "world", "devices", "processes"),
    "nodes": ("node", "hosts", "host", "servers", "nnodes", "instances"),
    "op": ("collective", "operation", "test", "coll"),
    "dtype": ("type", "datatype", "data_type"),
    "size_bytes": ("size", "bytes", "msg", "message", "buffer", "msg_size", "message_size"),
    "time_us": ("time", "latency", "duration", "time_out_of_place"),
    "algbw_gbps": ("algbw", "alg_bw", "algorithm_bandwidth", "alg_bandwidth"),
    "busbw_gbps": ("busbw", "bus_bw", "bus_bandwidth"),
    "notes": ("note", "comment", "comments", "remarks"),
}  # fmt: skip
_NAMES = {name: column for column, others in _OTHER.items() for name in others}
#: Text that says what the ranks ran on where no column is called so.
_SYSTEM = ("gpu_type", "gpu_model", "accelerator", "interconnect", "network", "fabric", "nic", "nics")
_UNIT = re.compile(
    r"^(.*?)[\s_]*(?:[(\[]\s*([\w/]+)\s*[)\]]|_(us|ms|s|ns|gbps|bytes|b|kb|kib|mb|mib|gb|gib))$", re.IGNORECASE
)


def column_of(name: str) -> tuple[str, str]:
    """Return a column in our words, and the unit that its head states."""
    plain = _plain(name)
    if plain in COLUMNS:
        return plain, ""
    found = _UNIT.match(name.strip())
    stem, unit = (found.group(1), found.group(2) or found.group(3)) if found else (name, "")
    column = _plain(stem)
    column = column if column in COLUMNS else _NAMES.get(column, "")
    return (column, "" if unit.lower() in ("gbps", "bytes") and not found.group(2) else unit) if column and found else (
        _NAMES.get(plain, plain), ""
    )  # fmt: skip


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return text if text in COLUMNS else re.sub(r"^(?:num|number_of|n|no|of)_|_(?:count|size)$", "", text)


def renamed(names: Sequence[str], cells: Mapping[str, str]) -> dict[str, str]:
    """Return a row under our names; a number whose unit is in the head of its column carries it."""
    out: dict[str, str] = {}
    for name in names:
        column, unit = column_of(name)
        cell = cells.get(name, "").strip()
        if column not in out:
            out[column] = f"{cell} {unit}" if unit and re.fullmatch(r"[-+\d.,eE]+", cell) else cell
    if "system" not in out:
        out["system"] = " ".join(cell for name in _SYSTEM if (cell := out.get(name, "")))
    return out


Floats = npt.NDArray[np.float64]
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv")
"""Operations by the one name that schedules, plans and logs share; `op_name` reads every other spelling."""
_MAX_BYTES = 200_000_000
_COLUMNS = ("system", "gpus", "op", "size_bytes")
_RATES = ("time_us", "busbw_gbps", "algbw_gbps")
_SPELLINGS = {"all2all": "all_to_all", "a2a": "all_to_all", "bcast": "broadcast", "p2p": "send_recv"}
_OP_NAMES = {name.replace("_", ""): name for name in OPS} | _SPELLINGS
_QUANTITY = re.compile(r"([-+]?[\d.,]+(?:e[-+]?\d+)?)\s*([a-z/]*)", re.IGNORECASE)
# nccl-tests writes 1G and means 2^30; a unit that is spelled with a B means the same here.
_SIZE_UNITS = {"": 0, "b": 0, "bytes": 0} | {u: i for i, k in enumerate("kmgt", 1) for u in (k, f"{k}b", f"{k}ib")}
_TIME_UNITS = {"": 1.0, "us": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6, "ns": 1e-3}


@dataclass(frozen=True)
class MeasuredRow:
    """One line of a results CSV; `problem` says why it cannot be used, `num_hosts` is 0 where the line does not say."""

    line: int
    source: str
    system: str
    num_gpus: int
    num_hosts: int
    op: str
    size_bytes: float
    time_us: float
    notes: str
    dtype: str = ""
    problem: str = ""


def bus_factor(op: str, num_ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, nccl-tests' convention."""
    if op == "all_reduce":
        return 2 * (num_ranks - 1) / num_ranks
    return 1.0 if op in ("broadcast", "reduce", "send_recv") else (num_ranks - 1) / num_ranks


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


def read_rows(text: str, where: str) -> list[MeasuredRow]:
    """Read rows of the published form: source, system, gpus, nodes, op, dtype, size_bytes, time_us, ..., notes.

    A line whose cells cannot be used becomes a row with a `problem`; only a file that is no such CSV is an error.
    """
    reader = csv.DictReader(StringIO(text.lstrip("\ufeff"), newline=""))
    try:
        heads = reader.fieldnames = [(name or "").strip() for name in reader.fieldnames or ()]
        names = [column_of(head)[0] for head in heads]
        missing = [c for c in _COLUMNS if c not in (*names, "system" if "gpu_type" in names else "")]
        if not missing and not any(c in names for c in _RATES):
            missing = [_RATES[0]]
        if missing:
            known = ", ".join(("source", "system", "gpus", "nodes", "op", "size_bytes", "time_us", "notes"))
            raise FileError(f"column {missing[0]} is missing.", where=where, hint=f"Columns: {known}.")
        return [_row(line, renamed(heads, _texts(raw))) for line, raw in enumerate(reader, start=2)]
    except csv.Error as error:
        raise FileError(f"this is not a CSV: {error}.", where=f"{where} line {reader.line_num}") from None


def op_name(text: str) -> str:
    """Return our name of an operation however it is spelled ("AllReduce", "all_reduce_perf", "all_to_all")."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower().replace("_perf", "").replace("nccl", ""))
    return _OP_NAMES.get(plain, text.strip())


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return a cell's number in the unit of its column, or None for an empty cell; other text is an error."""
    cell = text.strip()
    if not cell or cell.lower() in ("n/a", "na", "-", "none", "nan"):
        return None
    match = _QUANTITY.fullmatch(cell)
    if match is None or match.group(2).lower() not in units:
        raise ValueError(f'"{cell[:40]}" is not a number')
    value = float(match.group(1).replace(",", "")) * units[match.group(2).lower()]
    if not math.isfinite(value):
        raise ValueError(f'"{cell[:40]}" is not a finite number')
    return value


def _texts(raw: Mapping[str | None, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else "" for k, v in raw.items() if k is not None}


def _row(line: int, cells: Mapping[str, str]) -> MeasuredRow:
    op = op_name(cells.get("op", ""))
    gpus = hosts = 0
    size = time_us = 0.0
    problem = ""
    try:
        gpus = _count(cells.get("gpus", ""), "gpus")
        hosts = _count(cells.get("nodes", ""), "nodes")
        size = _quantity(cells.get("size_bytes", ""), {u: 1024.0**i for u, i in _SIZE_UNITS.items()}) or 0.0
        time_us = _time_us(cells, op, gpus, size)
    except ValueError as error:
        problem = f"{error}."
    text = [cells.get(name, "") for name in ("source", "system", "notes", "dtype")]
    return MeasuredRow(line, text[0], text[1], gpus, hosts, op, size, time_us, text[2], text[3], problem)


def _count(cell: str, name: str) -> int:
    value = _quantity(cell, {"": 1.0})
    if value is None:
        return 0
    if value != int(value) or not 0 <= value <= 10_000_000:
        raise ValueError(f'{name} "{cell.strip()[:40]}" is not a count')
    return int(value)


def _time_us(cells: Mapping[str, str], op: str, gpus: int, size: float) -> float:
    """Return the time of a row, or what its bandwidths say; 0 where neither was published."""
    given = _quantity(cells.get("time_us", ""), _TIME_UNITS)
    if given:
        return given
    for name, factor in (("busbw_gbps", bus_factor(op, max(gpus, 1))), ("algbw_gbps", 1.0)):
        cell = cells.get(name, "")
        bits = re.search(r"Gb(?:ps|it|/s)", cell) is not None  # GB/s is what nccl-tests prints
        rate = _quantity(cell, dict.fromkeys(("", "gb/s", "gbps", "gbit/s", "gib/s"), 0.125 if bits else 1.0))
        if rate is not None and rate > 0 and size > 0:
            return size * factor / rate / 1e3
    return 0.0


# Size, count, type, then (by release and operation) the reduction and the root, then time and two bandwidths.
_LOG_LINE = re.compile(
    r"^[ \t]*(?:\[[^\]\n]*\]\S*[ \t]*|\d+:[ \t]+|\S+Z[ \t]+)?(\d+)[ \t]+\d+[ \t]+[a-z]\w*(?:[ \t]+[a-z]\w*)?"
    r"(?:[ \t]+-?\d+)?[ \t]+([\d.]+)[ \t]+[\d.]+[ \t]+[\d.]+[ \t]",
    re.MULTILINE,
)
_OP_IN_LOG = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall|broadcast|reduce|sendrecv)_perf", re.IGNORECASE
)


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
    op = op_name(op)
    if op not in OPS:
        raise FileError("the log does not say which operation ran.", where=where, hint=f"Name it: {', '.join(OPS)}.")
    return op
