"""Traces of one job, a rank each, whichever tool wrote them: recognised by content, not by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.describe.progress import Meter
from syncline.errors import DescriptionError, FileError
from syncline.explaining.graph_trace import read_graph
from syncline.explaining.steps import launched_steps
from syncline.explaining.tools import GRAPH, TOOLS
from syncline.timeline.recording.recording import Recording
from syncline.workload.trace import is_prefix, start_of


def read_recordings(paths: Sequence[str | Path], meter: Meter | None = None) -> tuple[Recording, ...]:
    """Return the recordings of files and of all traces in folders; one that holds several ranks gives several."""
    files = [file for path in paths for file in _files(Path(path))]
    meter = meter or Meter()
    meter.expect(sum(file.stat().st_size for file in files if file.is_file()))
    return tuple(one for file in files for one in _read(file, meter))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.is_file() and tool_of(file) is not None)
        if not found:
            raise FileError(f'"{path}" has no traces.', hint=f"Known are: {', '.join(TOOLS)}.")
        # Ranks of a graph wait for each other: they are read together.
        return [path] if tool_of(found[0]) == GRAPH else found
    if is_prefix(path):
        return [path]
    if not path.is_file():
        raise FileError(f'there is no file "{path}".', hint="Name traces, or a folder of them.")
    return [path]


def tool_of(path: Path) -> str | None:
    """Return the tool that wrote a file; None where it is not known."""
    start = start_of(path)
    found = next((name for name, tool in TOOLS.items() if tool.wrote(start)), None)
    # Protobuf has no mark of its own: Chakra's files are known by their names.
    return GRAPH if found is None and path.name.lower().endswith((".et", ".et.gz")) else found


def _read(path: Path, meter: Meter) -> tuple[Recording, ...]:
    if path.is_dir() or is_prefix(path):
        return read_graph(path)
    if path.stat().st_size == 0:
        raise DescriptionError("the trace is empty.", where=str(path), hint="Profile one step and export it again.")
    name = tool_of(path)
    if name is None:
        raise DescriptionError(
            "not a trace that is known.", where=str(path), detail=f"Known are: {', '.join(TOOLS)}.",
            hint="An .nsys-rep is exported with: nsys export --type sqlite FILE.",
        )  # fmt: skip
    done = meter.done
    found = tuple(launched_steps(one) for one in TOOLS[name].read(path, meter))
    meter.reach(done + path.stat().st_size)
    return found
