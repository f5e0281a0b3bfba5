"""What each link carried: the table of links, and samples of bytes and rate over time, in columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from syncline.describe.frozen import FrozenColumns
from syncline.errors import TimelineError
from syncline.timeline.columns import (
    LEFT_OUT,
    MAX_RATE_BPS,
    MAX_TIME_S,
    Column,
    ColumnError,
    Floats,
    Table,
    integer,
    mean_rate_Bps,
)
from syncline.timeline.source import check_text, text_tuple
from syncline.timeline.spans import Int32s

RULES: tuple[Column, ...] = (
    integer("link", "int32"),
    Column("start_s", "float64", -MAX_TIME_S, MAX_TIME_S),
    Column("end_s", "float64", -MAX_TIME_S, MAX_TIME_S),
    Column("size_bytes", "float64", 0, MAX_RATE_BPS),
    Column("rate_Bps", "float64", 0, MAX_RATE_BPS),
)

MIN_CAPACITY_BPS = 1e-3


@dataclass(frozen=True, eq=False)
class NamedLinks(FrozenColumns):
    """The directed links a timeline speaks of: unique names, and capacity where it is known (NaN where it is not)."""

    names: tuple[str, ...] = ()
    capacity_Bps: Floats = LEFT_OUT  # unknown for every link

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", unique_names(self.names, "link"))
        given = np.nan if self.capacity_Bps is LEFT_OUT else self.capacity_Bps
        try:
            capacity = np.array(np.broadcast_to(np.asarray(given, np.float64), (len(self.names),)))
        except (ValueError, TypeError):
            problem = f"must be {len(self.names)} numbers, one for each link."
            raise ColumnError("links", "capacity_Bps", None, problem) from None
        # Below a byte in a quarter of an hour it is noise, and dividing by it would overflow; 0 is a link that is down.
        bad = (capacity < 0) | ((capacity > 0) & (capacity < MIN_CAPACITY_BPS)) | (capacity > MAX_RATE_BPS)
        if bad.any():
            row = int(bad.argmax())
            problem = f"{capacity[row].item()} is not a rate."
            raise ColumnError("links", "capacity_Bps", row, problem, hint="Leave it NaN where it is not known.")
        capacity.flags.writeable = False
        object.__setattr__(self, "capacity_Bps", capacity)

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the index of the link called `name`."""
        try:
            return self.names.index(name)
        except ValueError:
            some = ", ".join(self.names[:4]) or "none"
            raise TimelineError(f'no link is called "{name}".', detail=f"{len(self)} links: {some} ...") from None


@dataclass(frozen=True, eq=False)
class LinkSamples(Table):
    """Columns of link samples; samples of one link may overlap (one per flow, say), and then they add up.

    link          index into the timeline's `links`
    start_s end_s the interval the sample covers
    size_bytes    bytes carried in it (float: models share a byte between intervals); totals and windows use this
    rate_Bps      rate the source states for it; bytes over duration unless given; instantaneous peaks use this
    """

    TABLE = "samples"
    RULES = RULES
    link: Int32s
    start_s: Floats
    end_s: Floats
    size_bytes: Floats
    rate_Bps: Floats = LEFT_OUT  # size over duration

    def filled(self, name: str) -> object:
        return self.own_rate_Bps() if name == "rate_Bps" else None

    def own_rate_Bps(self) -> Floats:
        """Return bytes over duration; 0 where a sample is so short that its rate means nothing."""
        return mean_rate_Bps(self.size_bytes, self.end_s - self.start_s)


def unique_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    """Return `names` as a tuple, checked to be texts without a repeat (indices and names must mean the same)."""
    result = text_tuple(names, f"{what} names")
    seen: dict[str, int] = {}
    for i, name in enumerate(result):
        check_text(name, f"{what} name {i}")
        if name in seen:
            problem = f'{what} name "{name}" stands twice in its table, at {seen[name]} and {i}.'
            raise TimelineError(problem, hint="Make the names differ, or use the first index for both.")
        seen[name] = i
    return result
