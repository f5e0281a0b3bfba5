"""Runs of nccl-tests found in a log: which hosts took part and what bus bandwidth the largest size reached."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from syncline.logs.tally import Evidence, MatchRow

_RACK = re.compile(r"(?:^|[-_.])((?:rack|pod|su|leaf|r)[-_]?\d+)(?=[-_.n]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class HostTable:
    """One table: its hosts and the largest row."""

    hosts: tuple[str, ...]
    size_bytes: int
    busbw_GBps: float
    evidence: Evidence
    op: str = ""

    @property
    def num_hosts(self) -> int:
        return len(self.hosts)

    @property
    def racks(self) -> tuple[str, ...]:
        """The racks that the hosts' names tell; empty unless all do."""
        found = [_RACK.search(host) for host in self.hosts]
        return tuple(sorted({match[1].lower() for match in found if match})) if all(found) else ()


@dataclass
class _Open:
    hosts: dict[str, None] = field(default_factory=dict)
    op: str = ""
    best: tuple[int, float, Evidence] | None = None

    def close(self) -> list[HostTable]:
        if self.best is None or not self.hosts:
            return []
        return [HostTable(tuple(self.hosts), *self.best, op=self.op)]


def runs(rows: Iterable[MatchRow]) -> list[HostTable]:
    """Return the runs in the order of their lines; a table ends at its average or at the next one's first rank."""
    found: list[HostTable] = []
    current, order = _Open(), -1
    for row in sorted(rows, key=lambda r: (r.evidence.order, r.evidence.line)):
        if row.evidence.order != order:
            found += current.close()
            current, order = _Open(), row.evidence.order
        if row.get("name"):
            if current.best is not None:
                found += current.close()
                current = _Open()
            current.hosts[row.get("name")] = None
        elif row.get("bytes"):
            size, rate = int(row.get("bytes")), float(row.get("busbw"))
            if current.best is None or size >= current.best[0]:
                current.best = (size, rate, row.evidence)
        elif row.get("average"):
            found += current.close()
            current = _Open()
    return found + current.close()
