"""Traces of real steps as Workloads, whichever tool wrote them: recognised by content, not by name."""

from __future__ import annotations

import glob
import json
import re
import zlib
from pathlib import Path

from syncline.describe.guide import cite
from syncline.errors import DescriptionError, FileError
from syncline.timeline.recording.kineto import read_kineto
from syncline.workload.graph import FORMAT, Workload, load_workload
from syncline.workload.traces.chakra import GROUPS_FILE, read_chakra
from syncline.workload.traces.execution_trace import read_execution
from syncline.workload.traces.recorded import recorded_workload

SUFFIXES = (".et", ".json", ".json.gz", ".et.gz")


def is_trace(path: str | Path) -> bool:
    """Say whether a name is that of a trace, or of many, rather than of a job."""
    return str(path).lower().endswith(SUFFIXES) or Path(path).is_dir() or _numbered(Path(path)).is_file()


def is_prefix(path: Path) -> bool:
    """Say whether a name is the part before `.0.et` of numbered traces, as ASTRA-sim takes it."""
    return not path.is_file() and _numbered(path).is_file()


def read_trace(path: str | Path) -> Workload:
    """Return the workload of a Chakra trace, of PyTorch's profiler or execution trace, or one that syncline wrote.

    A folder has one file a rank, in the order of the numbers in their names; so has a prefix, as ASTRA-sim takes it:
    `traces/job` for `traces/job.0.et`, `traces/job.1.et` and so on.
    """
    files = trace_files(Path(path))
    start = start_of(files[0])
    if len(files) == 1 and start.startswith(f'{{"syncline": "{FORMAT}"'.encode()):
        return load_workload(files[0])
    if is_execution(start):
        return read_execution(files)
    if is_profiler(start):
        return recorded_workload([read_kineto(file) for file in files])
    workload = read_chakra(files)
    if not len(workload):
        raise DescriptionError(
            "the trace has no operations.",
            where=str(path),
            hint=f"Name a profiler or Chakra trace, or a job file in YAML ({cite('job-file')}).",
        )
    return workload


def trace_files(path: Path) -> list[Path]:
    """Return the files that a name stands for, in the order of their ranks."""
    if path.is_dir():
        files = [file for file in path.iterdir() if file.name.lower().endswith(SUFFIXES) and file.name != GROUPS_FILE]
        if not files:
            raise FileError(f'"{path}" has no traces.', hint=f"Their names end in {', '.join(SUFFIXES)}.")
        return sorted(files, key=_by_numbers)
    if not path.is_file() and _numbered(path).is_file():
        return sorted(path.parent.glob(f"{glob.escape(path.name)}.*.et"), key=_by_numbers)
    return [path]


def _numbered(path: Path) -> Path:
    return path.with_name(f"{path.name}.0.et")


def _by_numbers(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"[0-9]+", path.name)], path.name


def start_of(path: Path) -> bytes:
    """Return how a file starts, unpacked; nothing where it cannot be read, as the reader then says why."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if start[:2] == b"\x1f\x8b":
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 1 << 16)
    except (OSError, zlib.error):
        return b""
    return start


def is_execution(start: bytes) -> bool:
    """Say whether a file is PyTorch's own: calls with their `inputs`, and operators with their schema."""
    return start.lstrip().startswith(b"{") and b'"schema"' in start[:1000] and b'"inputs"' in start


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
