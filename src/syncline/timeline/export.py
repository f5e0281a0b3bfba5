"""Saving and loading timelines: one form per suffix when writing, recognised by content when reading.

save(timeline, "run.timeline")    compact, exact, fast, needs nothing
save(timeline, "run.json.gz")     Chrome trace, for ui.perfetto.dev; exact too
save(timeline, "run.parquet")     for data frames and SQL (needs syncline[parquet])
timeline = load("run.json.gz")
"""

from __future__ import annotations

import os

from syncline.describe.files import open_file
from syncline.errors import TimelineError
from syncline.timeline.chrome import OPENING, read_chrome, write_chrome
from syncline.timeline.compact import MAGIC, read_compact, write_compact
from syncline.timeline.parquet import read_parquet, write_parquet
from syncline.timeline.timeline import Timeline

_WRITERS = {
    ".timeline": write_compact,
    ".json": write_chrome,
    ".json.gz": write_chrome,
    ".parquet": write_parquet,
}
_READERS = (
    (MAGIC, read_compact),
    (b"PAR1", read_parquet),
    (b"\x1f\x8b", read_chrome),
    (OPENING.encode(), read_chrome),
)


def save(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline in the form its suffix names: .timeline, .json, .json.gz or .parquet."""
    name = os.fspath(path).lower()
    for suffix, write in _WRITERS.items():
        if name.endswith(suffix):
            write(timeline, path)
            return
    problem = "does not end in a form syncline knows."
    raise TimelineError(problem, where=os.fspath(path), hint=f"Known forms: {', '.join(_WRITERS)}.")


def load(path: str | os.PathLike[str]) -> Timeline:
    """Read a timeline that `save` wrote, whatever its name."""
    with open_file(path) as file:
        begin = file.read(32)
    for magic, read in _READERS:
        if begin.startswith(magic):
            return read(path)
    problem = "is empty." if not begin else "is not a timeline."
    hint = f"Timelines end in {', '.join(_WRITERS)} and are made by `--trace` or `save`."
    raise TimelineError(problem, where=os.fspath(path), hint=hint)
