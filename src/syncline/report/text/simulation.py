"""Simulated collectives as a table of the shape of nccl-tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from syncline.describe import units
from syncline.report.text.packet import against_flow, background_line

if TYPE_CHECKING:
    from rich.console import Console


def sweep_table(rows: Sequence[Mapping[str, Any]], width: int = 0) -> Table:
    """Return one line a size: time, bandwidths, the limiting link and how it was found.

    On a screen of `width` columns the least telling ones are left out rather than any figure cut; names fold.
    """
    sure = any("low_s" in row for row in rows)
    cells = {
        "size": [units.show_given_size(row["size_bytes"]) for row in rows],
        "time": [units.show_time(row["time_s"]) for row in rows],
        **({"90 % between": [_between(row, "low_s", "high_s") for row in rows]} if sure else {}),
        **({"50 % between": [_between(row, "low50_s", "high50_s") for row in rows]} if sure else {}),
        "algbw\nGB/s": [_gigabytes(row["algbw_Bps"]) for row in rows],
        "busbw\nGB/s": [_gigabytes(row["busbw_Bps"]) for row in rows],
        "wire\nGB/s": [_gigabytes(row["wire_Bps"]) for row in rows],
        "util": [f"{100 * row['utilisation']:.1f} %" if row["utilisation"] is not None else "-" for row in rows],
        "algorithm": [row["algorithm"] for row in rows],
        # NCCL's own choice has no chunks, and one method.
        **({} if sure else {"chunks": [str(row.get("chunks") or "-") for row in rows]}),
        "limiting link": [row["limiting_link"] or "-" for row in rows],
        **({} if sure else {"method": [row["method"] for row in rows]}),
    }
    table = Table(box=None, pad_edge=False)
    shown = _that_fit(cells, width)
    for heading in shown:
        figure = heading not in _NAMES
        right = figure and heading != "chunks"
        table.add_column(heading, justify="right" if right else "left", no_wrap=figure, overflow="fold")
    for line in zip(*(cells[heading] for heading in shown), strict=True):
        table.add_row(*line)
    return table


_NAMES = {"algorithm": 12, "limiting link": 18, "method": 8}
"""Columns of words, and how narrow they may fold."""
_LEAST = ("50 % between", "wire\nGB/s", "method", "chunks", "util", "algbw\nGB/s", "limiting link", "algorithm")
"""What is left out first on a narrow screen."""


def _that_fit(cells: Mapping[str, Sequence[str]], width: int) -> list[str]:
    def narrowest(heading: str) -> int:
        wide = max(map(len, (*heading.split("\n"), *cells[heading])))
        return min(wide, _NAMES.get(heading, wide))

    shown = list(cells)
    for heading in _LEAST:
        if not width or sum(map(narrowest, shown)) + 2 * (len(shown) - 1) <= width:
            break
        if heading in shown:
            shown.remove(heading)
    return shown


def _between(row: Mapping[str, Any], low: str, high: str) -> str:
    if low not in row:
        return "-"
    first, last = units.show_time(row[low]), units.show_time(row[high])
    number, _, unit = first.partition(" ")
    return f"{number}..{last}" if last.endswith(f" {unit}") else f"{first}..{last}"


def _gigabytes(rate_Bps: float | None) -> str:
    return "-" if rate_Bps is None else f"{rate_Bps / 1e9:.3g}" if rate_Bps < 1e9 else f"{rate_Bps / 1e9:.2f}"


def contest_table(columns: Sequence[str], rows: Sequence[tuple[int, Mapping[str, float], str]]) -> Table:
    """Return one line a size and one column an algorithm, the winner marked."""
    table = Table(box=None, pad_edge=False)
    table.add_column("size", justify="right", no_wrap=True)
    for name in columns:
        table.add_column(name.replace("-", "\n", 1), justify="right", no_wrap=True)
    for size, times, winner in rows:
        cells = [units.show_time(times[n]) + (" *" if n == winner else "  ") if n in times else "-  " for n in columns]
        table.add_row(units.show_given_size(size), *cells)
    return table


MAX_COLUMNS, SIZE_WIDTH, COLUMN_WIDTH = 6, 9, 15
"""Algorithms shown side by side, fewer on a narrow terminal; what a size and an algorithm take of it."""

METHODS = {
    "recurrence": "no two flows compete: exact recurrence over rounds",
    "flows": "every flow simulated",
    "periodic": "repeated rounds simulated to their steady state, then extrapolated exactly",
    "barrier": "each different round solved once with a barrier after it: a bound",
    "bound": "lower bound: busiest link and longest chain of rounds",
    "nccl": "NCCL's choice and its fitted cost",
    "packets": "every packet simulated",
}


def method_lines(methods: Sequence[str]) -> list[str]:
    """Return what the methods that occur mean."""
    lines = []
    for method in dict.fromkeys(methods):
        folded, plain = method.startswith("folded "), method.removeprefix("folded ")
        text = METHODS.get(plain, plain)
        lines.append(f"  {method}: {'ranks that cannot be told apart simulated as one; ' if folded else ''}{text}")
    return lines


def show_simulation(console: Console, payload: Mapping[str, Any]) -> None:
    """Print a sweep of sizes."""
    how = ", ".join(f"{payload[name]}" for name in ("placement", "routing", "transport") if name in payload)
    console.print(
        f"{payload['collective']} on {payload['cluster']}: {payload['ranks']:,} ranks" + (f" ({how})" if how else "")
    )
    console.print(sweep_table(payload["rows"], console.width))
    console.print()
    if "spread" in payload:
        spread = payload["spread"]
        times = ", ".join(
            f"{name} {units.show_time(spread[name + '_s'])}" for name in ("median", "p10", "p90", "worst")
        )
        console.print(f"over {spread['num_seeds']} seeds, {units.show_given_size(spread['size_bytes'])}: {times}")
    for row in payload["rows"]:
        if "flow_time_s" in row:
            console.print("\n  ".join(against_flow(row)), soft_wrap=True)
            if "background" in row["packet"]:
                console.print(f"  {background_line(row['packet'])}", soft_wrap=True)
    console.print(f"{payload['level']} level; ignores {', '.join(payload['ignores'])}")
    for text in payload.get("assumed") or ():
        console.print(f"  assumed: {text}", soft_wrap=True)
    for text in payload.get("interval_basis") or ():
        console.print(f"  intervals from {text}", soft_wrap=True)
    for line in method_lines([row["method"] for row in payload["rows"]]):
        console.print(line)


def show_comparison(console: Console, payload: Mapping[str, Any]) -> None:
    """Print who wins at which size."""
    names, left_out = _columns(payload, console.width)
    lines = []
    for winner in payload["winners"]:
        mine = [row for row in payload["rows"] if row["size_bytes"] == winner["size_bytes"]]
        lines.append((winner["size_bytes"], {r["algorithm"]: r["time_s"] for r in mine}, winner["algorithm"]))
    levels = " x ".join(
        f"{part['size']:,} {part['name']}{'s' if part['size'] > 1 else ''}" for part in payload["levels"]
    )
    console.print(f"{payload['collective']} on {payload['cluster']}: {payload['ranks']:,} ranks ({levels}); * wins")
    console.print(contest_table(names, lines))
    console.print()
    for winner in payload["winners"]:
        if winner["chunks"] > 1:
            size = units.show_given_size(winner["size_bytes"])
            console.print(f"{size}: {winner['algorithm']} in {winner['chunks']} chunks")
    if left_out:
        console.print(f"never first, and not shown: {', '.join(left_out)} (--json has them all)", soft_wrap=True)
    for change in payload["crossovers"]:
        console.print(f"from {units.show_size(change['size_bytes'])} on: {change['to']} beats {change['from']}")
    console.print(f"{payload['level']} level; ignores {', '.join(payload['ignores'])}")
    for text in payload.get("assumed") or ():
        console.print(f"  assumed: {text}", soft_wrap=True)


def _columns(payload: Mapping[str, Any], width: int) -> tuple[list[str], list[str]]:
    """Return the algorithms that win at some size, filled up with those that come nearest, and the rest."""
    behind: dict[str, float] = {}
    for winner in payload["winners"]:
        mine = [row for row in payload["rows"] if row["size_bytes"] == winner["size_bytes"]]
        best = min(row["time_s"] for row in mine)
        for row in mine:
            gap = row["time_s"] / best if best > 0 else 1.0
            behind[row["algorithm"]] = min(behind.get(row["algorithm"], gap), gap)
    winners = {winner["algorithm"] for winner in payload["winners"]}
    ordered = sorted(behind, key=lambda name: (name not in winners, behind[name]))
    cut = max(min(MAX_COLUMNS, (width - SIZE_WIDTH) // COLUMN_WIDTH), len(winners))
    return ordered[:cut], ordered[cut:]
