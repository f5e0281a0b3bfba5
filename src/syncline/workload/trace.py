"""Traces of real steps as Workloads, whichever tool wrote them: recognised by content, not by name."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from syncline.workload.chakra import read_chakra
from syncline.workload.execution_trace import read_execution
from syncline.workload.graph import Workload
from syncline.workload.kineto import read_kineto

SUFFIXES = (".et", ".json", ".json.gz", ".et.gz")


def is_trace(path: str | Path) -> bool:
    """Say whether a file name is that of a trace rather than of a job."""
    return str(path).lower().endswith(SUFFIXES)


def read_trace(path: str | Path) -> Workload:
    """Return the workload of a Chakra trace, or of PyTorch's profiler or execution trace."""
    start = _start(Path(path))
    if _is_execution(start):
        return read_execution(path)
    return read_kineto(path) if _is_profiler(start) else read_chakra(path)


def _start(path: Path) -> bytes:
    """Return how a file starts, unpacked; nothing where it cannot be read, as the reader then says why."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if start[:2] == b"\x1f\x8b":
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 1 << 16)
    except (OSError, zlib.error):
        return b""
    return start


def _is_execution(start: bytes) -> bool:
    """Say whether a file is PyTorch's own: calls with their `inputs`, in a schema named after Chakra."""
    return start.lstrip().startswith(b"{") and b"-chakra" in start[:1000] and b'"inputs"' in start


def _is_profiler(start: bytes) -> bool:
    """Say whether a file is a profiler's: one JSON object with `traceEvents`."""
    if not start.lstrip().startswith((b"{", b"[")):
        return False
    if b'"traceEvents"' in start:
        return True
    try:
        first = json.JSONDecoder().raw_decode(start.decode("utf-8", "replace").lstrip().removeprefix("["))[0]
    except ValueError:
        return b'"schemaVersion"' in start
    return isinstance(first, dict) and "ph" in first
