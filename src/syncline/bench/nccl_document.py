"""The JSON of nccl-tests (-J: one document) and of rccl-tests (objects on lines, or in one list), as measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from syncline.bench.measured import NAMES, Measurement, Timing
from syncline.bench.nccl_run import Device, NcclTestRun, is_amd, program_in
from syncline.bench.nccl_table import release
from syncline.describe import units
from syncline.errors import BenchError
from syncline.schedule.collective import Kind

_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def read_document(text: str, where: str, kind: Kind | None, num_ranks: int) -> NcclTestRun:
    """Return the run that a JSON text holds; `kind` and `num_ranks` where it does not say them."""
    first = text.split("\n", 1)[0].rstrip()
    try:
        if '"inPlace"' in first and first.endswith("}"):
            data: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            data = json.loads(text)
        if isinstance(data, list):
            log = _of_records(data, kind, num_ranks)
        else:
            log = _of_document(data, where, kind, num_ranks)
    except _DAMAGED as error:
        raise BenchError(f"this is not the JSON of nccl-tests -J: {error!r:.120}.", where=where) from None
    if not log.rows or not log.num_ranks:
        raise BenchError("the JSON holds no result with a time, or no devices.", where=where)
    return log


def _of_document(data: Mapping[str, Any], where: str, kind: Kind | None, num_ranks: int) -> NcclTestRun:
    config = data.get("config", {})
    devices = tuple(_device(row, at) for at, row in enumerate(data.get("devices") or config.get("devices", [])))
    kind = kind or program_in(" ".join(map(str, data.get("args", []))))
    if kind is None:
        raise BenchError("the log does not say which collective ran.", where=where, hint="Name it with --collective.")
    ranks = num_ranks or _num_ranks(devices, config)
    rows = tuple(row for result in data["results"] for row in _rows(result, kind, ranks, config))
    code = data.get("nccl_version", "")
    version = release(code) if isinstance(code, int) else str(code)
    return NcclTestRun(
        kind, ranks, rows, devices, version, "rccl" if is_amd(devices) else "nccl",
        tuple(_left_out(data["results"])),
    )  # fmt: skip


def _left_out(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say which times were left out: those that are there and not above 0."""
    for at, result in enumerate(results, start=1):
        for name in ("out_of_place", "in_place"):
            part = result.get(name)
            value = part.get("time", part.get("cpu_time")) if isinstance(part, Mapping) else None
            if isinstance(value, int | float) and not _time_us(part) > 0:
                size, place = units.show_size(int(result["size"])), name.replace("_", " ")
                yield f"result {at} left out: the time of {size} {place} is {value:g}, not a number above 0"


def _device(row: Mapping[str, Any], at: int) -> Device:
    host, name = (str(row.get(key, "")) for key in ("hostname", "device_info"))
    return Device(int(row.get("rank", at)), host, int(row.get("device", 0)), name)


def _num_ranks(devices: Sequence[Device], config: Mapping[str, Any]) -> int:
    """Return the ranks; of a process with several threads or GPUs only the first is listed."""
    each = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
    all_listed = len(devices) > 1 and devices[1].rank - devices[0].rank == 1
    return len(devices) if all_listed else len(devices) * each


def _rows(result: Mapping[str, Any], kind: Kind, ranks: int, config: Mapping[str, Any]) -> Iterator[Measurement]:
    repeats = int(config.get("iterations", 1) or 1)
    for name, in_place in (("out_of_place", False), ("in_place", True)):
        part = result.get(name)
        time_us = _time_us(part)
        if not isinstance(part, Mapping) or time_us <= 0:
            continue
        wrong = part.get("nwrong")
        yield Measurement(
            kind, ranks, int(result["size"]), _timing(time_us, result.get(f"{name}_per_iter"), repeats), "vendor",
            str(result.get("type", "float")), int(result.get("count", 0)), str(result.get("redop", "none")),
            int(result.get("root", -1)), int(float(str(wrong))) if _finite(wrong) else None, in_place=in_place,
        )  # fmt: skip


def _time_us(part: object) -> float:
    """Return the time of a part, or of the processor where that was asked for (-C); 0 where there is none."""
    if not isinstance(part, Mapping):
        return 0.0
    value = part.get("time", part.get("cpu_time"))
    return float(value) if _finite(value) else 0.0


def _timing(time_us: float, each: object, repeats: int) -> Timing:
    if not isinstance(each, Mapping) or not _finite(each.get("p50_us")) or not _finite(each.get("p95_us")):
        return Timing.single(time_us * 1e-6, repeats)
    low = float(each["min_us"]) if _finite(each.get("min_us")) else float(each["p50_us"])
    return Timing(float(each["p50_us"]) * 1e-6, low * 1e-6, float(each["p95_us"]) * 1e-6, repeats)


def _of_records(found: Sequence[Mapping[str, Any]], kind: Kind | None, num_ranks: int) -> NcclTestRun:
    """Return the run of rccl-tests -Z json: one object for each size, out of place and in place.

    Older releases count wrong elements under "#wrong", newer ones under "wrong".
    """
    first = found[0]
    kind = kind or NAMES[str(first["name"]).lower()]
    ranks = num_ranks or int(first["ranks"]) * int(first.get("gpusPerRank", 1))
    rows = tuple(
        Measurement(
            kind, ranks, int(row["size"]), Timing.single(float(row["time"]) * 1e-6), "vendor", str(row["type"]),
            redop=str(row.get("redop", "none")), in_place=bool(row["inPlace"]),
            num_wrong=int(float(wrong)) if _finite(wrong := row.get("wrong", row.get("#wrong"))) else None,
        )
        for row in found if _time_us(row) > 0
    )  # fmt: skip
    left = ({"size": row["size"], "in_place" if row["inPlace"] else "out_of_place": row} for row in found)
    return NcclTestRun(kind, ranks, rows, library="rccl", notes=tuple(_left_out(list(left))))


def _finite(value: object) -> bool:
    try:
        return math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
