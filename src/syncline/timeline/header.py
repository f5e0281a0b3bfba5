"""What every file form keeps beside the rows: version, source, tables and metadata, as one JSON object."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from syncline.errors import TimelineError
from syncline.timeline.columns import Array
from syncline.timeline.links import LinkSamples, NamedLinks
from syncline.timeline.source import Source
from syncline.timeline.spans import Spans
from syncline.timeline.timeline import Timeline

FORMAT = "syncline-timeline"
VERSION = 2
MAX_ROWS = 2**28
"""Most rows a reader accepts: a file of a few bytes may claim any number, and 268 million spans need 14 GB."""


@dataclass(frozen=True, eq=False)
class Header:
    """The header of a file; `timeline` joins it with the rows."""

    source: Source
    names: tuple[str, ...]
    links: NamedLinks
    metadata: dict[str, Any]
    num_spans: int
    num_samples: int

    def timeline(self, spans: dict[str, Array], samples: dict[str, Array], where: str) -> Timeline:
        """Return the timeline of these columns, every value checked."""
        try:
            rows, links = Spans(**spans), LinkSamples(**samples)
            return Timeline(self.source, rows, self.names, links, self.links, self.metadata)
        except TimelineError as error:
            error.where = where
            raise


def header_of(timeline: Timeline) -> str:
    """Return the header of a timeline as JSON text."""
    capacity = [None if math.isnan(rate) else rate for rate in timeline.links.capacity_Bps.tolist()]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "source": asdict(timeline.source),
        "names": timeline.names,
        "links": list(zip(timeline.links.names, capacity, strict=True)),
        "metadata": timeline.metadata,
        "num_spans": len(timeline.spans),
        "num_samples": len(timeline.samples),
    }
    return json.dumps(header, allow_nan=False)


def read_header(text: bytes, where: str) -> Header:
    """Return the header of a file; `where` begins the error texts."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise TimelineError(f"is not a syncline timeline (format {data['format']!r:.40}).", where=where)
        if data["version"] != VERSION:
            hint = f"This syncline reads version {VERSION}."
            raise TimelineError(f"has timeline version {data['version']!r:.40}.", where=where, hint=hint)
        names = tuple(name for name, _ in data["links"])
        capacity = [math.nan if rate is None else float(rate) for _, rate in data["links"]]
        counts = {name: int(data[name]) for name in ("num_spans", "num_samples")}
        if not all(0 <= count <= MAX_ROWS for count in counts.values()):
            raise ValueError(f"{counts}, of at most {MAX_ROWS} rows each")
        source, links = Source(**data["source"]), NamedLinks(names, capacity)  # type: ignore[arg-type]
        return Header(source, tuple(data["names"]), links, data["metadata"], **counts)
    except TimelineError as error:
        error.where = error.where or where
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TimelineError(f"has a damaged header ({type(error).__name__}: {error!s:.80}).", where=where) from None
