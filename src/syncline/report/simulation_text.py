"""Simulated collectives as a table of the shape of nccl-tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from syncline import units


def sweep_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line a size: time, bandwidths, the limiting link and how it was found."""
    table = Table(box=None, pad_edge=False)
    headings = (
        "size",
        "time",
        "algbw\nGB/s",
        "busbw\nGB/s",
        "wire\nGB/s",
        "util",
        "algorithm",
        "limiting link",
        "method",
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number < 6 else "left", no_wrap=True)
    for row in rows:
        table.add_row(
            units.show_size(row["size_bytes"]),
            units.show_time(row["time_s"]),
            _gigabytes(row["algbw_Bps"]),
            _gigabytes(row["busbw_Bps"]),
            _gigabytes(row["wire_Bps"]),
            f"{100 * row['utilisation']:.1f} %" if row["utilisation"] is not None else "-",
            row["algorithm"],
            row["limiting_link"] or "-",
            row["method"],
        )
    return table


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
        table.add_row(units.show_size(size), *cells)
    return table


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
