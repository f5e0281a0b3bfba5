"""The tools whose traces are read: how each is recognised, and its reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from syncline.describe.progress import Meter
from syncline.explaining.graph_trace import read_graph
from syncline.timeline.recording.collective_log import is_flight, is_inspector, read_flight, read_inspector
from syncline.timeline.recording.kineto import read_kineto
from syncline.timeline.recording.nsight import is_csv, is_nsight, read_csv, read_nsight
from syncline.timeline.recording.recording import Recording
from syncline.workload.trace import is_execution, is_profiler


class Tool(NamedTuple):
    """One tool: whether it wrote a file that starts so, and what a file recorded."""

    wrote: Callable[[bytes], bool]
    read: Callable[[Path, Meter], tuple[Recording, ...]]


def is_graph(start: bytes) -> bool:
    """Say whether a file is Chakra's in JSON, or PyTorch's execution trace."""
    plain = start.lstrip()
    return plain.startswith(b"{") and (
        is_execution(start) or b'"ctrl_deps"' in plain or b'"workload_graph"' in plain[:200]
    )


PROFILER = "PyTorch profiler traces (.json, .json.gz)"
GRAPH = "Chakra and PyTorch execution traces (.et, .json)"
TOOLS = {
    PROFILER: Tool(is_profiler, lambda path, meter: (read_kineto(path, meter),)),
    "flight recorder dumps": Tool(is_flight, lambda path, _: (read_flight(path),)),
    "NCCL Inspector files": Tool(is_inspector, lambda path, _: read_inspector(path)),
    "Nsight Systems exports (.sqlite)": Tool(is_nsight, lambda path, _: read_nsight(path)),
    "Nsight Systems reports (.csv)": Tool(is_csv, lambda path, _: (read_csv(path),)),
    GRAPH: Tool(is_graph, lambda path, _: read_graph(path)),
}
