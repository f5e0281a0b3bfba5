"""Checks on flight-recorder dumps: who is missing, and who called something else."""

from __future__ import annotations

from collections import Counter, defaultdict

from syncline.logs.tally import MatchRow, Tallies, rows_of
from syncline.logs.verdict import CheckVerdict, some

SIGNAL = "signal.flight"


def _groups(tallies: Tallies) -> dict[str, dict[str, dict[int, MatchRow]]]:
    """Return group -> rank -> sequence number -> row."""
    found: dict[str, dict[str, dict[int, MatchRow]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows_of(tallies, SIGNAL):
        found[row.get("group")][row.get("rank")][int(row.get("seq"))] = row
    return {group: ranks for group, ranks in found.items() if len(ranks) > 1}


def flight_missing(tallies: Tallies) -> list[CheckVerdict]:
    """Return ranks that stopped before a collective that others have entered."""
    found = []
    for group, ranks in _groups(tallies).items():
        last = {rank: max(rows) for rank, rows in ranks.items()}
        top = max(last.values())
        behind = {rank: seq for rank, seq in last.items() if seq < top}
        ahead = next(rank for rank, seq in last.items() if seq == top)
        if behind and ranks[ahead][top].get("state") != "completed":
            rank, seq = min(behind.items(), key=lambda item: item[1])
            text = (f"rank {some(behind)} stopped at #{seq} {ranks[rank][seq].get('op')}; "
                    f"{len(last) - len(behind)} others wait in #{top} {ranks[ahead][top].get('op')}")  # fmt: skip
            shown = (ranks[rank][seq].evidence, ranks[ahead][top].evidence)
            found.append(CheckVerdict(text, f"rank {some(behind)} group {group}", shown))
    return found


def flight_mismatch(tallies: Tallies) -> list[CheckVerdict]:
    """Return collectives that ranks of one group called differently: another operation or another size."""
    found = []
    for group, ranks in _groups(tallies).items():
        for seq in sorted({seq for rows in ranks.values() for seq in rows}):
            rows = {rank: held[seq] for rank, held in ranks.items() if seq in held}
            calls = Counter((row.get("op"), _comparable(row)) for row in rows.values())
            if len(calls) < 2:
                continue
            usual, _ = calls.most_common(1)[0]
            odd = {rank: row for rank, row in rows.items() if (row.get("op"), _comparable(row)) != usual}
            row = next(iter(odd.values()))
            text = f"#{seq}: rank {some(odd)} called {row.get('op')} {row.get('sizes')}, others {usual[0]} {usual[1]}"
            other = next(r for r in rows.values() if r is not row and r not in odd.values())
            found.append(CheckVerdict(text, f"rank {some(odd)} group {group}", (row.evidence, other.evidence)))
            break
    return found


def _comparable(row: MatchRow) -> str:
    # Rooted and uneven collectives may differ in size by right.
    uneven = any(
        word in row.get("op").lower() for word in ("gather", "scatter", "send", "recv", "all_to_all", "broadcast")
    )
    return "" if uneven else row.get("sizes")
