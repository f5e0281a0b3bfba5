"""What nccl-tests or rccl-tests printed (its table or its -J JSON), as measurements.

Tables are read as they arrive in the world: with the prefixes of mpirun, srun and kubectl, with or without "#", of old
releases (an `error` column, no root) and new ones (`#wrong`), NCCL's own log lines in between, several tables in one
file. In-place and out-of-place times are both kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.bench.measured import PROGRAM, Measured, Timing
from syncline.errors import BenchError, FileError
from syncline.schedule.collective import Kind

MAX_BYTES = 256 * 1024 * 1024
_PREFIX = r"(?:\[[^\]\n]{1,40}\](?:<\w+>)?:?[ \t]*|\d{1,6}:[ \t]+|[\w.-]{1,80}:[ \t]+|\S{1,40}Z[ \t]+(?:std\w+ F )?)?"
_ROW = re.compile(
    rf"^{_PREFIX}[ \t]*(?P<size>\d+)[ \t]+(?P<count>\d+)[ \t]+(?P<type>[a-z]\w*)(?:[ \t]+(?P<redop>[a-z]\w*))?"
    r"(?:[ \t]+(?P<root>-?\d+))?(?P<out>(?:[ \t]+\S+){4})(?P<in>(?:[ \t]+\S+){4})?[ \t]*$"
)
_DEVICE = re.compile(
    r"Rank[ \t]+(?P<rank>\d+)(?:[ \t]+Group[ \t]+\d+)?[ \t]+Pid[ \t]+\d+[ \t]+on[ \t]+(?P<host>\S+)[ \t]+device"
    r"[ \t]+(?P<device>\d+)[ \t]+\[[^\]]*\][ \t]*(?P<name>.*)"
)
_PROGRAM = re.compile(r"\b(" + "|".join(name.removesuffix("_perf") for name in PROGRAM.values()) + r")_perf")
_KIND = {name: kind for kind, name in PROGRAM.items()}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\Z", re.IGNORECASE)
_VERSION = re.compile(r"(?:NCCL|RCCL) version[ :]+([\w.+-]+)|nccl_version[\"': =]+([\w.+-]+)", re.IGNORECASE)
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values[ \t]*:[ \t]*(\d+)")


@dataclass(frozen=True)
class Device:
    """One rank as the log names it."""

    rank: int
    host: str
    device: int
    name: str


@dataclass(frozen=True)
class Log:
    """One run: which collective, on what, and its lines. `library` is nccl or rccl."""

    kind: Kind
    num_ranks: int
    rows: tuple[Measured, ...]
    devices: tuple[Device, ...] = ()
    version: str = ""
    library: str = "nccl"
    notes: tuple[str, ...] = field(default=())

    @property
    def num_hosts(self) -> int:
        """Count the hosts that the devices name; 0 where the log has none."""
        return len({device.host for device in self.devices})


def read_log(path: Path, *, kind: Kind | None = None, num_ranks: int = 0) -> Log:
    """Return the run that a file holds; `kind` and `num_ranks` where the log does not say them."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f'"{path}" is larger than {MAX_BYTES:,} bytes.', hint="Give one run's log.")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.') from None
    return parse(text, str(path), kind=kind, num_ranks=num_ranks)


def parse(text: str, where: str, *, kind: Kind | None = None, num_ranks: int = 0) -> Log:
    """Return the run that a text holds."""
    stripped = text.lstrip("\ufeff \t\r\n")
    return (
        _of_json(stripped, where, kind, num_ranks)
        if stripped.startswith("{")
        else _of_table(text, where, kind, num_ranks)
    )


def _of_table(text: str, where: str, kind: Kind | None, num_ranks: int) -> Log:
    lines = text.splitlines()
    devices = _devices(lines)
    named = _PROGRAM.search(text)
    kind = kind or (_KIND[named.group(0)] if named else _kind_from_rows(lines))
    ranks = num_ranks or len(devices) or _ranks_from_bandwidths(lines, kind)
    if kind is None:
        raise BenchError("the log does not say which collective ran.", where=where, hint="Name it with --collective.")
    rows = tuple(row for line in lines for row in _row(line, kind, ranks))
    if not rows:
        raise BenchError("no result line of nccl-tests was found.", where=where,
                         hint="Give the output of all_reduce_perf, say, or its -J file.")  # fmt: skip
    if not ranks:
        raise BenchError("the log does not say how many ranks ran.", where=where, hint="Give --ranks.")
    version = _VERSION.search(text)
    amd = any("AMD" in device.name or "Instinct" in device.name for device in devices) or "RCCL" in text
    notes = []
    bounds = _OUT_OF_BOUNDS.search(text)
    if bounds and int(bounds.group(1)):
        notes.append(f"the log itself counts {int(bounds.group(1))} values out of bounds")
    if "Avg bus bandwidth" not in text:
        notes.append("the run did not end: there is no average at the end of the log")
    return Log(kind, ranks, rows, devices, next(filter(None, version.groups()), "") if version else "",
               "rccl" if amd else "nccl", tuple(notes))  # fmt: skip


def _devices(lines: list[str]) -> tuple[Device, ...]:
    """Return the ranks named, each once; some launches print every rank as rank 0 of its own run."""
    found: dict[tuple[int, str, int], Device] = {}
    for line in lines:
        match = _DEVICE.search(line)
        if match:
            device = Device(int(match["rank"]), match["host"], int(match["device"]), match["name"].strip())
            found[device.rank, device.host, device.device] = device
    return tuple(sorted(found.values(), key=lambda device: device.rank))


def _row(line: str, kind: Kind, num_ranks: int) -> Iterator[Measured]:
    match = _ROW.match(line.rstrip("\r"))
    if match is None:
        return
    for group, in_place in (("out", False), ("in", True)):
        cells = (match[group] or "").split()
        times = [_number(cell) for cell in cells[:3]]
        if len(cells) < 4 or times[0] is None or times[0] <= 0 or int(match["size"]) <= 0:
            continue
        yield Measured(
            kind, num_ranks, int(match["size"]), Timing.single(times[0] * 1e-6), "vendor", match["type"],
            int(match["count"]), match["redop"] or "none", int(match["root"] or -1), _wrong(cells[3]),
            in_place=in_place,
        )  # fmt: skip


def _number(cell: str) -> float | None:
    return float(cell) if _NUMBER.match(cell) else None


def _wrong(cell: str) -> int | None:
    """Return how many were wrong: a count, or 1 for an `error` of old releases above its tolerance; N/A is unknown."""
    value = _number(cell.rstrip("*"))
    if value is None:
        return None
    if cell.endswith("*") and value < 1:
        return 1
    return int(value) if value >= 1 else 0


def _kind_from_rows(lines: list[str]) -> Kind | None:
    """Tell an all-reduce by its reduction and its bandwidths, where the program's name is not in the log."""
    for line in lines:
        match = _ROW.match(line)
        if match and match["redop"] in ("sum", "prod", "min", "max", "avg"):
            ratio = _ratio(match)
            if ratio and ratio > 1:
                return Kind.ALL_REDUCE
    return None


def _ratio(match: re.Match[str]) -> float | None:
    cells = [_number(cell) for cell in (match["out"] or "").split()[:3]]
    if len(cells) == 3 and cells[1] and cells[2] and cells[1] > 1:
        return cells[2] / cells[1]
    return None


def _ranks_from_bandwidths(lines: list[str], kind: Kind | None) -> int:
    """Return the ranks that busbw over algbw tells: 2(n-1)/n or (n-1)/n, read from the fastest line."""
    best, ranks = 0.0, 0
    for line in lines:
        match = _ROW.match(line)
        ratio = _ratio(match) if match else None
        if match is None or not ratio:
            continue
        share = ratio / 2 if kind is Kind.ALL_REDUCE else ratio
        algbw = _number(match["out"].split()[1]) or 0.0
        if 0 < share < 1 and algbw > best:
            best, ranks = algbw, round(1 / (1 - share))
    return ranks if ranks >= 2 else 0


def _of_json(text: str, where: str, kind: Kind | None, num_ranks: int) -> Log:
    try:
        data = json.loads(text)
        results = data["results"]
        arguments = " ".join(str(a) for a in data.get("args", []))
        devices = tuple(
            Device(
                int(d.get("rank", i)),
                str(d.get("hostname", "")),
                int(d.get("device", 0)),
                str(d.get("device_info", "")),
            )
            for i, d in enumerate(data.get("devices", []))
        )
        named = _PROGRAM.search(arguments)
        kind = kind or (_KIND[named.group(0)] if named else None)
        if kind is None:
            raise BenchError(
                "the log does not say which collective ran.", where=where, hint="Name it with --collective."
            )
        ranks = num_ranks or len(devices)
        rows = tuple(row for result in results for row in _json_rows(result, kind, ranks, data.get("config", {})))
        version = str(data.get("nccl_version", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BenchError(f"this is not the JSON of nccl-tests -J: {error!r:.120}.", where=where) from None
    if not rows or not ranks:
        raise BenchError("the JSON holds no result with a time, or no devices.", where=where)
    amd = any("AMD" in device.name or "Instinct" in device.name for device in devices)
    return Log(kind, ranks, rows, devices, version, "rccl" if amd else "nccl")


def _json_rows(result: Mapping[str, Any], kind: Kind, ranks: int, config: Mapping[str, Any]) -> Iterator[Measured]:
    repeats = int(config.get("iterations", 1) or 1)
    for name, in_place in (("out_of_place", False), ("in_place", True)):
        part = result.get(name)
        if not isinstance(part, Mapping) or not _finite(part.get("time")) or float(part["time"]) <= 0:
            continue
        each = result.get(f"{name}_per_iter")
        timing = Timing.single(float(part["time"]) * 1e-6, repeats)
        if isinstance(each, Mapping) and _finite(each.get("p50_us")) and _finite(each.get("p95_us")):
            low = float(each["min_us"]) if _finite(each.get("min_us")) else float(each["p50_us"])
            timing = Timing(float(each["p50_us"]) * 1e-6, low * 1e-6, float(each["p95_us"]) * 1e-6, repeats)
        wrong = part.get("nwrong")
        yield Measured(
            kind, ranks, int(result["size"]), timing, "vendor", str(result.get("type", "float")),
            int(result.get("count", 0)), str(result.get("redop", "none")), int(result.get("root", -1)),
            int(float(str(wrong))) if _finite(wrong) else None, in_place=in_place,
        )  # fmt: skip


def _finite(value: object) -> bool:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return number == number and abs(number) != float("inf")
