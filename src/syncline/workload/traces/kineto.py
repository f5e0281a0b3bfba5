"""PyTorch profiler traces (Kineto's Chrome JSON) as Workloads: kernels and NCCL collectives of one rank each.

    workload = read_kineto(["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"])

Only what ran on the device counts; where nothing did, calls on the CPU and gloo's collectives (`kineto_host.py`).
Streams keep their order; an operation that started right when another stream's ended is taken to have waited for it.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from syncline.errors import DescriptionError
from syncline.workload.graph import GraphBuilder, Op, Workload
from syncline.workload.traces.chakra_file import file_content
from syncline.workload.traces.execution_trace import RECORDED, WIDTHS, add_transfer, word_of
from syncline.workload.traces.kineto_host import TraceEvent, add_host_rank, is_host_event

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_NCCL = re.compile(r"^nccl\w*Kernel", re.IGNORECASE)  # RCCL's kernels have NCCL's names
Records = Mapping[str, Mapping[str, Any]]
#: An operation that starts within this time of another stream's end is taken to have waited for it.
CLOSE_US = 20.0


def read_kineto(paths: str | Path | Sequence[str | Path], *, name: str = "profiler trace") -> Workload:
    """Return the workload of one or several profiler traces, a rank each."""
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    builder = GraphBuilder(name, {"source": "PyTorch profiler trace", "files": len(files)})
    for rank, path in enumerate(files):
        data = _load(Path(path))
        events, host, records = _events(data, str(path))
        world = _world(data) or len(files)
        if events:
            _add_rank(builder, rank, events, records, world)
        else:
            add_host_rank(builder, rank, host, world)
    return builder.build()


def _load(path: Path) -> Any:
    try:
        return json.loads(file_content(path))
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"not a profiler trace: {error}.", where=str(path)) from None


def _events(data: Any, where: str) -> tuple[list[TraceEvent], list[TraceEvent], Records]:
    """Return what ran on the device, or where nothing did on the host, and what the host recorded of collectives."""
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise DescriptionError('a profiler trace has a list "traceEvents".', where=where)
    found: list[TraceEvent] = [
        cast(TraceEvent, event)
        for event in events or ()
        if isinstance(event, dict)
        and event.get("ph") == "X"
        and event.get("cat") in _DEVICE
        and _is_number(event.get("ts"))
    ]
    host = [] if found else [event for event in events if is_host_event(event)]
    if not found and not any(event.get("cat") == "user_annotation" for event in host):
        raise DescriptionError(
            "the trace has no device kernels, and no collectives on the CPU either.",
            where=where,
            hint="Profile with activities=[CPU, CUDA] (gloo: CPU and record_shapes=True); schedule one step.",
        )
    return sorted(found, key=lambda event: float(event["ts"])), host, _records(events)


def _world(data: Any) -> int:
    """Return how many ranks the trace says there are; 0 where it does not."""
    stated = data.get("distributedInfo") if isinstance(data, dict) else None
    size = stated.get("world_size") if isinstance(stated, dict) else None
    return int(size) if _is_number(size) else 0  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _add_rank(builder: GraphBuilder, rank: int, events: list[TraceEvent], records: Records, world: int) -> None:
    streams = {key: i for i, key in enumerate(dict.fromkeys(_stream(event) for event in events))}
    ends: list[tuple[float, int, int]] = []  # end, operation, stream; kept in order of end
    last_end: dict[int, float] = {}
    for event in events:
        start, length = float(event["ts"]), max(float(event.get("dur") or 0.0), 0.0)
        stream = streams[_stream(event)]
        deps = _waited_for(ends, start, stream, last_end.get(stream, float("-inf")))
        record = _record(event, records)
        if record is None:
            kind = Op.COMPUTE if str(event.get("cat")).lower() == "kernel" else Op.MEMORY
            op = builder.add(rank, kind, _name(event), stream=stream, duration_s=length / 1e6, deps=deps)
        else:
            op = _transfer(builder, rank, event, record, stream, length, deps, world)
        last_end[stream] = start + length
        bisect.insort(ends, (start + length, op, stream))


def _name(event: Mapping[str, Any]) -> str:
    return str(event.get("name", ""))[:120]


def _stream(event: Mapping[str, Any]) -> str:
    return str(_args(event).get("stream", event.get("tid")))


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _waited_for(ends: list[tuple[float, int, int]], start: float, stream: int, own_end: float) -> tuple[int, ...]:
    """Return the other stream's operation whose end let this one start, if one ended just before."""
    at = bisect.bisect_right(ends, (start, 1 << 60, 0)) - 1
    while at >= 0 and ends[at][0] >= max(start - CLOSE_US, own_end):
        if ends[at][2] != stream:
            return (ends[at][1],)
        at -= 1
    return ()


def _records(events: list[Any]) -> Records:
    """Return what the host recorded of each collective it launched, by the number that its kernels carry."""
    found = (event for event in events if isinstance(event, dict) and event.get("name") == RECORDED)
    return {str(args["External id"]): args for args in map(_args, found) if "External id" in args}


def _record(event: Mapping[str, Any], records: Records) -> Mapping[str, Any] | None:
    """Return the record of a kernel that communicates, which may be empty; None for other work.

    Newer profilers copy the host's record to the kernel; older ones leave it with the host.
    """
    args = _args(event)
    if "Collective name" in args:
        return args
    if _NCCL.search(_name(event)) is None:
        return None
    return records.get(str(args.get("External id")), {})


def _transfer(
    builder: GraphBuilder, rank: int, event: Mapping[str, Any], record: Mapping[str, Any], stream: int,
    length_us: float, deps: tuple[int, ...], world: int,
) -> int:  # fmt: skip
    word = word_of(str(record.get("Collective name") or _name(event)))
    width = WIDTHS.get(str(record.get("dtype", "")).lower(), 2)
    # The whole buffer: what comes out of a gather, what goes into a scatter.
    counts = [record.get(f"{way} msg {unit}", 0) for way in ("In", "Out") for unit in ("nelems", "size")]
    size = max(float(count) * width if _is_number(count) else 0.0 for count in counts)
    ranks = 2 if word in ("send", "recv") else _group_size(record) or world
    return add_transfer(
        builder, rank, word, _name(event), stream=stream, size_bytes=size, ranks=ranks, duration_s=length_us / 1e6,
        deps=deps,
    )  # fmt: skip


def _group_size(record: Mapping[str, Any]) -> int:
    """Return how many ranks took part; 0 where the trace does not say. Ranks are written as a list or as its text."""
    size, ranks = record.get("Group size"), record.get("Process Group Ranks")
    if _is_number(size):
        return int(size)  # type: ignore[arg-type]
    return len(re.findall(r"[0-9]+", str(ranks))) if ranks and "..." not in str(ranks) else 0
