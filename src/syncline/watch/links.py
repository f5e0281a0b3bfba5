"""Links as watch sees them: the table of directed links with what they should carry, and what they carry now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from syncline.describe.plain import JsonObject

Floats = npt.NDArray[np.float64]


class KnownLink(NamedTuple):
    """What is known of one direction of one device: what people call it, its rate, its rail and its two ends."""

    name: str
    capacity_Bps: float = float("nan")
    rail: int = -1
    src: str = ""
    dst: str = ""


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

    @classmethod
    def of(
        cls, links: Sequence[KnownLink], devices: Sequence[str], directions: Sequence[str], version: int
    ) -> LinkTable:
        """Return the table of links that are known with their ends."""
        names, capacity, rail, src, dst = zip(*links, strict=True) if links else ((), (), (), (), ())
        columns = np.array(capacity, np.float64), np.array(rail, np.int64)
        return cls(names, tuple(devices), tuple(directions), *columns, src, dst, version)

    @classmethod
    def named(cls, names: Sequence[str], capacity_Bps: Floats, version: int, rail: Sequence[int] = ()) -> LinkTable:
        """Return the table of links that are called `src -> dst`, each read where it leaves."""
        ends = [name.partition(" -> ")[::2] for name in names]
        rows = zip(names, capacity_Bps.tolist(), rail or [-1] * len(names), ends, strict=True)
        links = [KnownLink(name, capacity, own, *pair) for name, capacity, own, pair in rows]
        return cls.of(links, names, ("tx",) * len(names), version)

    @classmethod
    def joined(cls, tables: Sequence[LinkTable], version: int) -> LinkTable:
        """Return all links in one table; two agents may watch the same link, which then has a number."""
        seen: Counter[str] = Counter()
        links = []
        for table in tables:
            rows = zip(table.names, table.capacity_Bps, table.rail, table.src, table.dst, strict=True)
            for name, *rest in rows:
                seen[name] += 1
                links.append(KnownLink(name if seen[name] == 1 else f"{name} #{seen[name]}", *rest))
        devices = [device for table in tables for device in table.devices]
        return cls.of(links, devices, [way for table in tables for way in table.directions], version)

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
        initial = {"rate_Bps": np.nan, "peak_Bps": np.nan, "up": 1.0}
        return cls(**{name: np.full(num_links, initial.get(name, 0.0)) for name in LOAD_COLUMNS})


class JoinedLinks:
    """The links of several hosts side by side; a new table is made only when one of theirs changed."""

    def __init__(self) -> None:
        self._table = LinkTable.of((), (), (), 0)
        self._tables: list[LinkTable] = []

    def join(self, parts: Sequence[tuple[LinkTable, LinkLoad]]) -> tuple[LinkTable, LinkLoad]:
        """Return all links as one table, and what they did."""
        tables = [table for table, _ in parts]
        if len(tables) != len(self._tables) or any(a is not b for a, b in zip(tables, self._tables, strict=True)):
            self._table, self._tables = LinkTable.joined(tables, self._table.version + 1), tables
        columns = {name: [getattr(load, name) for _, load in parts] for name in LOAD_COLUMNS}
        joined = {name: np.concatenate(of) if of else np.zeros(0) for name, of in columns.items()}
        return self._table, LinkLoad(**joined)


LOAD_COLUMNS = tuple(column.name for column in fields(LinkLoad))
