"""Predicted against published collectives, as one screen of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table


def collective_errors(payload: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield errors by system and size band."""
    table = Table(title=f"Errors in %, {payload['source']}", title_justify="left", box=None, padding=(0, 1))
    table.add_column("system", no_wrap=True, max_width=26)
    for name in ("rows", "used", "all", "XS", "S", "M", "L", "six sizes", "interp.", "left out"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in {"overall": payload["overall"], **payload["systems"]}.items():
        bands = [_percent(row["by_band"][band]) for band in ("XS", "S", "M", "L")]
        others = [_percent(row[key]) for key in ("calibrated", "interpolated", "left_out")]
        table.add_row(name, str(row["rows"]), str(row["modelled"]), _percent(row), *bands, *others)
    yield table
    yield payload["bands"] + ". Each cell: median / 90th percentile."
    far = payload["overall"]["beyond_64_hosts"]
    if far["scored"]:
        held = f"the interval holds {far['coverage']:.0%} of them"
        yield f"Beyond 64 hosts ({far['scored']} rows): {_percent(far)} %; {held}."
    for name, row in payload["systems"].items():
        for words in row["remarks"]:
            yield f"read: {name[:60]}: {words}"
    for item in payload["unmodelled"]:
        yield f"not modelled: {item['rows']} rows of {item['system'][:60]}: {item['reason']}"


def _percent(row: Mapping[str, Any]) -> str:
    if row["median_error"] is None:
        return "-"
    return f"{100 * row['median_error']:.1f}/{100 * row['p90_error']:.0f}"
