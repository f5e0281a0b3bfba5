"""Traces of one job, a rank each, whichever tool wrote them: recognised by content, not by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.describe.progress import Meter
from syncline.errors import DescriptionError, FileError
from syncline.explaining.tools import TOOLS, start_of
from syncline.timeline.recording.recording import Recording


def read_recordings(paths: Sequence[str | Path], meter: Meter | None = None) -> tuple[Recording, ...]:
    """Return the recordings of files and of all traces in folders; one that holds several ranks gives several."""
    files = [file for path in paths for file in _files(Path(path))]
    meter = meter or Meter()
    meter.expect(sum(file.stat().st_size for file in files))
    return tuple(one for file in files for one in _read(file, meter))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.is_file() and _tool(file) is not None)
        if not found:
            raise FileError(f'"{path}" has no traces.', hint=f"Known are: {', '.join(TOOLS)}.")
        return found
    if not path.is_file():
        raise FileError(f'there is no file "{path}".', hint="Name traces, or a folder of them.")
    return [path]


def _tool(path: Path) -> str | None:
    start = start_of(path)
    return next((name for name, tool in TOOLS.items() if tool.wrote(start)), None)


def _read(path: Path, meter: Meter) -> tuple[Recording, ...]:
    name = _tool(path)
    if name is None:
        raise DescriptionError(
            "not a trace that is known.", where=str(path), detail=f"Known are: {', '.join(TOOLS)}.",
            hint="An .nsys-rep is exported with: nsys export --type sqlite FILE.",
        )  # fmt: skip
    done = meter.done
    found = TOOLS[name].read(path, meter)
    meter.reach(done + path.stat().st_size)
    return found
