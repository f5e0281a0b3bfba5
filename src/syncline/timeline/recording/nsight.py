"""Nsight Systems exports (`nsys export --type sqlite`): kernels, copies, CUDA calls and NVTX ranges of one process."""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from syncline.errors import DescriptionError
from syncline.timeline.collective import operation_of
from syncline.timeline.recording.kernel_kind import EXCHANGE, algorithm_of, kind_of
from syncline.timeline.recording.recording import (
    Calling,
    CollectiveCall,
    DeviceActivities,
    Doing,
    HostCalls,
    Recording,
    StepMark,
)

_SQLITE = b"SQLite format 3\x00"
_PLACES = "SELECT DISTINCT deviceId, {} FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 2"
_KERNELS = """SELECT k.start, k.end, k.streamId, k.correlationId, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN StringIds s ON s.id = k.demangledName WHERE k.deviceId = ? AND {} IS ?"""
_COPIES = (
    "SELECT start, end, streamId, correlationId, 'copy' FROM CUPTI_ACTIVITY_KIND_{} WHERE deviceId = ? AND {} IS ?"
)
_CALLS = """SELECT r.start, r.end, r.globalTid, r.correlationId, s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r
JOIN StringIds s ON s.id = r.nameId"""
_RANGES = "SELECT n.start, n.end, n.globalTid, -1, COALESCE(n.text, s.value, '') FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE n.end IS NOT NULL"  # noqa: E501
_THREAD = 0xFFFFFF
"""The bits of a thread's number that tell it from the others of its process."""
Row = tuple[int, int, int, int, str]


def is_nsight(start: bytes) -> bool:
    """Say whether a file is a database."""
    return start.startswith(_SQLITE)


def read_nsight(path: Path) -> tuple[Recording, ...]:
    """Return what an export recorded, a recording each device; NVTX ranges that repeat and cover most of it are steps.

    Ranks that `nsys profile torchrun` started share one export: each has its device, its process and its own numbers.
    """
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        named = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'StringIds'").fetchone()
    except sqlite3.Error as error:
        raise _refused(path, f"not an export of Nsight Systems: {error}") from None
    if named is None:
        raise _refused(path, "a database, but not an export of Nsight Systems")
    with contextlib.closing(connection):
        of = "globalPid"
        places = list(_rows(connection, _PLACES.format(of)))
        if not places:  # old exports do not tell processes apart
            of = "NULL"
            places = list(_rows(connection, _PLACES.format(of)))
        if not places:
            raise _refused(path, "the export has no kernels")
        gpu = next(iter(_rows(connection, "SELECT name FROM TARGET_INFO_GPU")), ("",))
        calls, ranges = list(_rows(connection, _CALLS)), list(_rows(connection, _RANGES))
        found = []
        for device, process in places:
            kernels = list(_rows(connection, _KERNELS.format(of), device, process))
            copies = [row for table in ("MEMCPY", "MEMSET")
                      for row in _rows(connection, _COPIES.format(table, of), device, process)]  # fmt: skip
            asked, marked = ([row for row in rows if process is None or row[2] & ~_THREAD == process]
                             for rows in (calls, ranges))  # fmt: skip
            found.append(_recording(path, kernels, copies, asked, marked, str(gpu[0])))
    return tuple(found)


def is_csv(start: bytes) -> bool:
    """Say whether a file is `nsys stats --report cuda_gpu_trace --format csv`."""
    return b"Start (ns)" in start and b"Duration (ns)" in start


def read_csv(path: Path) -> Recording:
    """Return the kernels and copies of a report; it has no calls of the host."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = iter(file)
        head = next(line for line in lines if "Duration (ns)" in line and "Start (ns)" in line)
        rows = [row for row in csv.DictReader([head, *lines]) if (row.get("Start (ns)") or "").strip().isdigit()]
    found: list[Row] = [
        (int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"]), int(row.get("Strm") or 0), -1,
         str(row.get("Name") or "")) for row in rows
    ]  # fmt: skip
    copies = [row for row in found if row[4].startswith("[CUDA mem")]
    return _recording(path, [row for row in found if row not in copies], copies, [], [], "")


def _refused(path: Path, why: str) -> DescriptionError:
    hint = "nsys profile -t cuda,nvtx ..., then nsys export --type sqlite FILE."
    return DescriptionError(f"{why}.", where=str(path), hint=hint)


def _rows(connection: sqlite3.Connection, query: str, *values: Any) -> Iterator[Any]:
    """Yield the rows of a table; none where the export does not have it."""
    try:
        yield from connection.execute(query, values)
    except sqlite3.OperationalError:
        return


def _recording(
    path: Path, kernels: list[Row], copies: list[Row], calls: list[Row], ranges: list[Row], gpu: str
) -> Recording:
    names: dict[str, int] = {}
    collectives: dict[CollectiveCall, int] = {}
    device = sorted([(*row, False) for row in kernels] + [(*row, True) for row in copies])
    first = min([device[0][0], *(row[0] for row in calls[:1])], default=0)
    first = min([first, *(row[0] for row in calls)]) if calls else first
    doing, collective = [], []
    for *_, name, copied in device:
        moves = not copied and kind_of(name) == EXCHANGE
        doing.append(Doing.COPY if copied else Doing.COLLECTIVE if moves else Doing.COMPUTE)
        call = CollectiveCall(operation_of(name) or "exchange", algorithm=algorithm_of(name))
        collective.append(collectives.setdefault(call, len(collectives)) if moves else -1)
    host = sorted(calls)
    by_number = {row[3]: place for place, row in enumerate(host)}
    threads = {thread: place for place, thread in enumerate(dict.fromkeys(row[2] for row in host))}
    steps = _steps(ranges, first, host[-1][1] if host else first)
    lacks = ["operators and Python lines (a torch.profiler trace has them)"]
    if not steps:
        lacks.append("steps: no NVTX range repeats over the recording (torch.cuda.nvtx.range around each step)")
    if collectives:
        lacks.append("sizes and groups of collectives (NCCL_NVTX, or a torch.profiler trace)")
    blocks = [Calling.BLOCK if "Synchronize" in row[4] else Calling.LAUNCH for row in host]
    return Recording(
        rank=-1, world=0, where=str(path), tool="Nsight Systems", device_name=gpu,
        device=DeviceActivities(
            name=np.array([names.setdefault(row[4], len(names)) for row in device], np.int64),
            doing=np.array(doing, np.int64), start_s=np.array([(row[0] - first) / 1e9 for row in device]),
            end_s=np.array([(row[1] - first) / 1e9 for row in device]),
            stream=np.array([row[2] for row in device], np.int64),
            call=np.array([by_number.get(row[3], -1) for row in device], np.int64),
            collective=np.array(collective, np.int64),
        ),
        host=HostCalls(
            name=np.array([names.setdefault(row[4], len(names)) for row in host], np.int64),
            calling=np.array(blocks, np.int64), start_s=np.array([(row[0] - first) / 1e9 for row in host]),
            end_s=np.array([(row[1] - first) / 1e9 for row in host]),
            thread=np.array([threads[row[2]] for row in host], np.int64),
        ),
        names=tuple(names), collectives=tuple(collectives), steps=steps, lacks=tuple(lacks),
    )  # fmt: skip


def _steps(ranges: list[Row], first: int, last: int) -> tuple[StepMark, ...]:
    """Return the ranges of the name, numbers apart, that repeats and covers most of the recording."""
    by_name: dict[str, list[Row]] = {}
    for row in ranges:
        by_name.setdefault("".join(c for c in row[4] if not c.isdigit()), []).append(row)
    found = [rows for rows in by_name.values() if len(rows) > 1]
    covers = [sum(row[1] - row[0] for row in rows) for rows in found]
    if not covers or max(covers) < 0.5 * (last - first):
        return ()
    rows = sorted(found[covers.index(max(covers))])
    return tuple(
        StepMark(row[4] or str(i), (row[0] - first) / 1e9, (row[1] - first) / 1e9) for i, row in enumerate(rows)
    )
