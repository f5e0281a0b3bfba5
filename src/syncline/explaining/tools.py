"""The tools whose traces are read: how each is recognised, and its reader."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from syncline.describe.progress import Meter
from syncline.explaining.graph_trace import read_graph
from syncline.timeline.recording.collective_log import is_flight, is_inspector, read_flight, read_inspector
from syncline.timeline.recording.kineto import read_kineto
from syncline.timeline.recording.nsight import is_csv, is_nsight, read_csv, read_nsight
from syncline.timeline.recording.recording import Recording


class Tool(NamedTuple):
    """One tool: whether it wrote a file that starts so, and what a file recorded."""

    wrote: Callable[[bytes], bool]
    read: Callable[[Path, Meter], tuple[Recording, ...]]


def start_of(path: Path) -> bytes:
    """Return how a file starts, unpacked; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if start[:2] == b"\x1f\x8b":
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 1 << 16)
    except (OSError, zlib.error):
        return b""
    return start


def is_profiler(start: bytes) -> bool:
    """Say whether a file is a profiler's: one JSON object with `traceEvents`, or a list of events."""
    if not start.lstrip().startswith((b"{", b"[")):
        return False
    if b'"traceEvents"' in start:
        return True
    try:
        first = json.JSONDecoder().raw_decode(start.decode("utf-8", "replace").lstrip().removeprefix("["))[0]
    except ValueError:
        return b'"schemaVersion"' in start
    return isinstance(first, dict) and "ph" in first


def is_graph(start: bytes) -> bool:
    """Say whether a file is Chakra's in JSON, or PyTorch's execution trace."""
    plain = start.lstrip()
    return plain.startswith(b"{") and (
        b"-chakra" in plain[:1000] or b'"ctrl_deps"' in plain or b'"workload 1"' in plain[:200]
    )


PROFILER = "PyTorch profiler traces (.json, .json.gz)"
GRAPH = "Chakra and PyTorch execution traces (.et, .json)"
TOOLS = {
    PROFILER: Tool(is_profiler, lambda path, meter: (read_kineto(path, meter),)),
    "flight recorder dumps": Tool(is_flight, lambda path, _: (read_flight(path),)),
    "NCCL Inspector files": Tool(is_inspector, lambda path, _: read_inspector(path)),
    "Nsight Systems exports (.sqlite)": Tool(is_nsight, lambda path, _: (read_nsight(path),)),
    "Nsight Systems reports (.csv)": Tool(is_csv, lambda path, _: (read_csv(path),)),
    GRAPH: Tool(is_graph, lambda path, _: read_graph(path)),
}
