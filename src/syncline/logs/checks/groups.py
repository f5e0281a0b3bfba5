"""Collectives that timed out, compared within their process group.

PyTorch says it in pieces: the watchdog's line (rank, sequence number, operation), and lines that carry the group and
where the rank stands in it (last enqueued, last completed). Numbers count within a group, so ranks of two groups are
never compared; where no line names the group, numbers that lie close together are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syncline.logs.tally import Evidence, MatchRow, Tallies, rows_of
from syncline.logs.verdict import CheckVerdict, some

SIGNAL = "signal.watchdog"
NEAR = 8
YOUNG = 100


@dataclass
class _Stand:
    """Where one rank stands in one group."""

    rank: str
    seq: str = ""
    op: str = ""
    enqueued: int | None = None
    completed: int | None = None
    evidence: list[Evidence] = field(default_factory=list)

    def take(self, row: MatchRow) -> None:
        self.seq = self.seq or row.get("seq")
        self.op = self.op or row.get("op")
        self.enqueued = int(row.get("enqueued")) if row.get("enqueued") else self.enqueued
        self.completed = int(row.get("completed")) if row.get("completed") else self.completed
        self.evidence.append(row.evidence)

    @property
    def call(self) -> str:
        return f"{self.op or 'work'} #{self.seq}" if self.seq else self.op or "a collective"

    @property
    def last(self) -> int | None:
        """The last collective this rank has entered."""
        if self.enqueued is not None:
            return self.enqueued
        return int(self.seq) if self.seq else None


def _rank(row: MatchRow) -> str:
    """Return the rank of the whole job where the line has it, else the rank in its group."""
    return row.evidence.context.rank or row.get("rank")


def stands(rows: Iterable[MatchRow]) -> dict[str, dict[str, _Stand]]:
    """Return group -> rank -> where it stands; the group "" holds what no line gives a group."""
    rows = sorted(rows, key=lambda row: (row.evidence.order, row.evidence.line))
    found: dict[str, dict[str, _Stand]] = defaultdict(dict)
    for row in rows:
        if row.get("group"):
            found[row.get("group")].setdefault(_rank(row), _Stand(_rank(row))).take(row)
    known = {(stand.rank, stand.seq): stand for ranks in found.values() for stand in ranks.values()}
    for row in rows:
        if row.get("group"):
            continue
        if (stand := known.get((_rank(row), row.get("seq")))) is not None:  # the same work, named by another line
            stand.take(row)
        elif row.get("seq") or not any(_rank(row) in ranks for ranks in found.values()):
            found[""].setdefault(_rank(row), _Stand(_rank(row))).take(row)
    return {group: ranks for group, ranks in found.items() if ranks}


def _split(group: str, ranks: Mapping[str, _Stand]) -> CheckVerdict | None:
    """Return how the ranks of one group differ, or None where they wait together."""
    known = {rank: stand for rank, stand in ranks.items() if stand.seq or stand.enqueued is not None}
    if len(known) < 2:
        return None
    where = f" in group {group}" if group else ""
    ops: dict[str, set[str]] = defaultdict(set)
    for stand in known.values():
        if stand.seq and stand.op:
            ops[stand.seq].add(stand.op)
    mixed = next((seq for seq, names in ops.items() if len(names) > 1), None)
    if mixed is not None and group:
        here = {rank: stand for rank, stand in known.items() if stand.seq == mixed}
        text = f"#{mixed}{where} is " + ", ".join(f"{stand.op} on rank {rank}" for rank, stand in _few(here))
        return CheckVerdict(text, _place(here, group), _lines(here.values()), 0.9)
    last = {rank: stand.last for rank, stand in known.items() if stand.last is not None}
    if len(set(last.values())) < 2 or not (group or _one_counter(known.values())):
        return None
    low = min(last.values())
    behind = tuple(rank for rank, value in last.items() if value == low)
    ahead = next(rank for rank, value in last.items() if value != low)
    if len(behind) == len(last):
        return None
    waits = Counter(stand.call for rank, stand in known.items() if rank not in behind).most_common(1)[0][0]
    did = ranks[behind[0]]
    stood = f"entered nothing after #{low}" if did.enqueued is not None else f"waits in {did.call}"
    text = f"rank {some(behind)} is behind{where}: it {stood}, while rank {ahead} and others wait in {waits}"
    shown = _lines([ranks[behind[0]], ranks[ahead]])
    return CheckVerdict(text, _place(behind, group), shown, 0.85 if group else 0.7)


def _place(ranks: Iterable[str], group: str) -> str:
    return f"rank {some(ranks, 12)}" + (f" group {group}" if group else "")


def _one_counter(found: Iterable[_Stand]) -> bool:
    """Say whether numbers that no line gives a group can be of one: close together, and large where operations differ.

    Communicators count on their own, so two of them are close only by chance, or while they are young.
    """
    found = list(found)
    numbers = [stand.last for stand in found if stand.last is not None]
    same = len({stand.op for stand in found}) == 1
    return max(numbers) - min(numbers) <= NEAR and (same or min(numbers) > YOUNG)


def _few(ranks: Mapping[str, _Stand]) -> list[tuple[str, _Stand]]:
    seen: dict[str, tuple[str, _Stand]] = {}
    for rank, stand in ranks.items():
        seen.setdefault(stand.op, (rank, stand))
    return list(seen.values())[:4]


def _lines(found: Iterable[_Stand]) -> tuple[Evidence, ...]:
    return tuple(stand.evidence[0] for stand in found)[:4]


def diverged(tallies: Tallies) -> list[CheckVerdict]:
    """Groups whose ranks stand in different collectives: one verdict each, the rank that fell behind named."""
    groups = stands(rows_of(tallies, SIGNAL))
    return [split for group, ranks in groups.items() if (split := _split(group, ranks)) is not None]


def watchdog(tallies: Tallies) -> list[CheckVerdict]:
    """Groups whose ranks all wait together, in one verdict: the group that timed out first stands first."""
    groups = stands(rows_of(tallies, SIGNAL))
    if not groups or diverged(tallies):
        return []
    order = sorted(groups, key=lambda group: min(stand.evidence[0].when for stand in groups[group].values()))
    parts = [_summary(group, groups[group]) for group in order[:4]]
    text = "; then ".join(parts) + (f" and {len(order) - 4} more groups" if len(order) > 4 else "")
    names = {rank for ranks in groups.values() for rank in ranks if rank}
    place = f"rank {some(names, limit=12)}" if names else ""
    lines = _lines(stand for group in order for stand in groups[group].values())
    return [CheckVerdict(text, place, lines, None if len(order) == 1 else 0.6)]


def _summary(group: str, ranks: Mapping[str, _Stand]) -> str:
    num = max(1, len([rank for rank in ranks if rank]))
    calls = Counter(stand.call for stand in ranks.values()).most_common(1)[0][0]
    where = f" of group {group}" if group else ""
    return f"{num} rank{'s' if num > 1 else ''} timed out{where} in {calls}"
