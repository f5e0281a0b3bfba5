"""Links as watch sees them: the table of directed links with what they should carry, and what they carry now."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from syncline.describe.plain import JsonObject

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinkTable:
    """The links there are, as columns. A new table is made when a link comes or goes; `version` then changes."""

    names: tuple[str, ...]
    devices: tuple[str, ...]
    directions: tuple[str, ...]
    capacity_Bps: Floats
    rail: npt.NDArray[np.int64]
    src: tuple[str, ...]
    dst: tuple[str, ...]
    version: int = 0

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> dict[str, int]:
        """Row of each link by name."""
        return {name: i for i, name in enumerate(self.names)}

    def to_json(self) -> JsonObject:
        """Return the table as the page reads it."""
        return {
            "version": self.version,
            "names": list(self.names),
            "devices": list(self.devices),
            "capacity_Bps": [None if np.isnan(c) else float(c) for c in self.capacity_Bps],
            "rail": self.rail.tolist(),
            "src": list(self.src),
            "dst": list(self.dst),
        }


LOAD_COLUMNS = (
    "rate_Bps",
    "peak_Bps",
    "saturated",
    "bursts",
    "drops_per_s",
    "errors_per_s",
    "pauses_per_s",
    "backlog_bytes",
    "up",
)


@dataclass(frozen=True, eq=False)
class LinkLoad:
    """What each link of a table did over one interval, as columns.

    rate_Bps      mean over the interval (NaN: not known yet)   peak_Bps   highest short-window rate (NaN: not sampled)
    saturated     share of the interval above 95 % of capacity     bursts     bursts that ended in the interval
    drops errors pauses    per second                              up         1 or 0
    """

    rate_Bps: Floats
    peak_Bps: Floats
    saturated: Floats
    bursts: Floats
    drops_per_s: Floats
    errors_per_s: Floats
    pauses_per_s: Floats
    backlog_bytes: Floats
    up: Floats

    def __len__(self) -> int:
        return len(self.rate_Bps)

    @classmethod
    def empty(cls, num_links: int) -> LinkLoad:
        """Return a load of which nothing is known, all links up."""
        unknown = {"rate_Bps", "peak_Bps"}
        columns = {f.name: np.full(num_links, np.nan if f.name in unknown else 0.0) for f in fields(cls)}
        columns["up"] = np.ones(num_links)
        return cls(**columns)
