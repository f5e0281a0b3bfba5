"""Logs of collectives alone: PyTorch's flight recorder (JSON or pickle) and NCCL Inspector (JSON lines).

They say when each collective of a rank began and ended, and nothing of what the device did in between.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import from_json

from syncline.describe.plain_pickle import read_plain_pickle
from syncline.errors import DescriptionError
from syncline.timeline.collective import operation_of
from syncline.timeline.recording.events import Event
from syncline.timeline.recording.kernel_kind import algorithm_of
from syncline.timeline.recording.kineto import WIDTHS
from syncline.timeline.recording.recording import CollectiveCall, DeviceActivities, Doing, HostCalls, Recording

MAX_BYTES = 1 << 30
_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|log|jsonl))?$")
_ONLY = "kernels and the host: the log has collectives alone (a torch.profiler trace has them)"


class _Draft:
    """Collectives of one rank under construction; times in seconds."""

    def __init__(self) -> None:
        self.calls: dict[CollectiveCall, int] = {}
        self.rows: list[tuple[float, float, int, str]] = []
        self.streams: dict[str, int] = {}

    def add(self, call: CollectiveCall, begin: float, end: float) -> None:
        self.rows.append((begin, max(end, begin), self.calls.setdefault(call, len(self.calls)), call.group))
        self.streams.setdefault(call.group, len(self.streams))

    def build(self, rank: int, world: int, where: str, tool: str, lacks: Sequence[str]) -> Recording:
        rows = sorted(self.rows)
        first = rows[0][0] if rows else 0.0
        names = tuple(call.operation for call in self.calls)
        number = np.array([row[2] for row in rows], np.int64)
        return Recording(
            rank=rank, world=world, where=where, tool=tool, device_name="", names=names,
            device=DeviceActivities(
                name=number, doing=np.full(len(rows), Doing.COLLECTIVE, np.int64),
                start_s=np.array([row[0] - first for row in rows]), end_s=np.array([row[1] - first for row in rows]),
                stream=np.array([self.streams[row[3]] for row in rows], np.int64),
                call=np.full(len(rows), -1, np.int64), collective=number,
            ),
            host=HostCalls.none(),
            collectives=tuple(self.calls), lacks=(_ONLY, *lacks),
        )  # fmt: skip


def is_flight(start: bytes) -> bool:
    """Say whether a file is a dump of the flight recorder, in JSON or as a pickle."""
    if start[:1] == b"\x80":
        return b"collective_seq_id" in start or b"pg_config" in start
    return start.lstrip()[:1] == b"{" and (b"collective_seq_id" in start or b'"pg_config"' in start)


def read_flight(path: Path) -> Recording:
    """Return the finished collectives of a dump; those that are not finished are counted in what it lacks."""
    data = _content(path)
    entries = data.get("entries") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(entries, list):
        raise DescriptionError('a flight-recorder dump has a list "entries".', where=str(path))
    draft, pending, untimed = _Draft(), [], 0
    groups = _group_sizes(data)
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        name = str(entry.get("profiling_name", "")).rpartition(":")[2]
        group = _group(entry)
        if entry.get("state") in ("scheduled", "started"):
            pending.append(f"{name} #{entry.get('collective_seq_id')}")
            continue
        moment = _moments(entry)
        if moment is None:
            untimed += 1
            continue
        size = max(_bytes(entry.get("input_sizes"), entry.get("input_dtypes")),
                   _bytes(entry.get("output_sizes"), entry.get("output_dtypes")))  # fmt: skip
        members = groups.get(_pg_name(entry), ())
        operation = operation_of(name) or name
        draft.add(CollectiveCall(operation, group, len(members), float(size), "", members), *moment)
    lacks = [f"{untimed} collectives have no time (TORCH_NCCL_ENABLE_TIMING=1 records it)"] if untimed else []
    if pending:
        lacks.append(
            f"the end of {', '.join(pending[:3])}: not finished when the dump was written (`syncline diagnose`)"
        )
    if not draft.rows:
        raise DescriptionError(
            "the dump has no collective with a beginning and an end.", where=str(path), detail="; ".join(lacks),
            hint="syncline diagnose names who a hung job waits for.",
        )  # fmt: skip
    rank = data["rank"] if isinstance(data.get("rank"), int) else _rank_of(path)
    return draft.build(rank, max((len(one) for one in groups.values()), default=0), str(path),
                       "PyTorch flight recorder", lacks)  # fmt: skip


def is_inspector(start: bytes) -> bool:
    """Say whether a file is NCCL Inspector's: a record of a collective's performance on each line."""
    return start.lstrip()[:1] == b"{" and (b'"coll_perf"' in start or b'"p2p_perf"' in start)


def read_inspector(path: Path) -> tuple[Recording, ...]:
    """Return the collectives of NCCL Inspector's lines, a recording each process.

    A record names its rank in the communicator: the widest communicator of a process tells which rank it is.
    """
    drafts: dict[object, _Draft] = {}
    places: dict[object, tuple[int, int]] = {}
    timed = True
    with path.open("rb") as file:
        for record in filter(None, map(_line, file)):
            header, metadata = _part(record, "header") or record, _part(record, "metadata")
            rank, world = int(header.get("rank", -1)), int(header.get("n_ranks", header.get("nranks", 0)) or 0)
            kind, perf = next(((kind, perf) for kind in ("coll", "p2p") if (perf := _part(record, f"{kind}_perf"))),
                              ("", {}))  # fmt: skip
            if rank < 0 or not perf:
                continue
            took = float(perf.get(f"{kind}_exec_time_us", 0.0)) / 1e6
            channels = _part(perf, "event_trace_ts").get("kernel_events", ())
            stops = [float(one["kernel_stop_ts"]) for one in channels if isinstance(one, dict)]
            end = max(stops, default=float(metadata.get("dump_timestamp_us", 0.0))) / 1e6
            timed &= bool(stops)
            call = CollectiveCall(
                operation_of(str(perf.get(kind, ""))) or str(perf.get(kind, "")),
                str(header.get("comm_name", "unknown")).replace("unknown", "") or str(header.get("id", ""))[:20], world,
                float(perf.get(f"{kind}_msg_size_bytes", 0.0)),
                algorithm_of(f"{perf.get('coll_algo', '')}_{perf.get('coll_proto', '')}".upper()),
            )  # fmt: skip
            process = (metadata["hostname"], metadata["pid"]) if {"hostname", "pid"} <= metadata.keys() else rank
            drafts.setdefault(process, _Draft()).add(call, end - took, end)
            places[process] = max((world, rank), places.get(process, (0, 0)))
    if not drafts:
        raise DescriptionError(
            "no line of the file is a record of a collective.", where=str(path), hint="NCCL_INSPECTOR_PROM_DUMP=0"
        )
    lacks = () if timed else ("when each collective ended: records come in blocks (NCCL_INSPECTOR_DUMP_VERBOSE=1)",)
    return tuple(draft.build(places[process][1], places[process][0], str(path), "NCCL Inspector", lacks)
                 for process, draft in drafts.items())  # fmt: skip


def _part(record: Event, name: str) -> Event:
    """Return an object inside a record; an empty one where it has none."""
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _line(line: bytes) -> Event | None:
    try:
        record = from_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _content(path: Path) -> Any:
    if path.stat().st_size > MAX_BYTES:
        raise DescriptionError("larger than any flight recorder writes.", where=str(path))
    content = path.read_bytes()
    try:
        return read_plain_pickle(content) if content[:1] == b"\x80" else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"not a whole dump: {error}.", where=str(path)) from None


def _moments(entry: Event) -> tuple[float, float] | None:
    end, begin = entry.get("time_discovered_completed_ns"), entry.get("time_discovered_started_ns")
    begin = begin or entry.get("time_created_ns")
    if not isinstance(end, int) or not isinstance(begin, int):
        return None
    took = entry.get("duration_ms")
    start = end / 1e9 - float(took) / 1e3 if isinstance(took, (int, float)) else begin / 1e9
    return min(start, end / 1e9), end / 1e9


def _pg_name(entry: Event) -> str:
    value = entry.get("process_group", entry.get("pg_name", ""))
    return str(value[0]) if isinstance(value, (list, tuple)) and value else str(value)


def _group(entry: Event) -> str:
    value = entry.get("process_group", entry.get("pg_name", ""))
    parts = value if isinstance(value, (list, tuple)) else [value]
    named = [str(part) for part in parts if part and part != "undefined"]
    return named[-1][:60] if named else ""


def _group_sizes(data: Event) -> dict[str, tuple[int, ...]]:
    config = data.get("pg_config")
    found = {}
    for name, one in config.items() if isinstance(config, dict) else ():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        numbers = re.findall(r"[0-9]+", str(ranks)) if ranks else []
        found[str(name)] = tuple(int(number) for number in numbers)
    return found


def _bytes(shapes: Any, types: Any) -> int:
    total = 0
    for shape, dtype in zip(shapes[:4096], types, strict=False) if isinstance(shapes, list) and types else ():
        if isinstance(shape, (list, tuple)) and all(isinstance(n, int) and 0 <= n < 1 << 48 for n in shape):
            total += math.prod(shape) * WIDTHS.get(str(dtype).lower(), 4)
    return min(total, 2**53)


def _rank_of(path: Path) -> int:
    found = _RANK.search(path.name)
    return int(found[1]) if found else -1
