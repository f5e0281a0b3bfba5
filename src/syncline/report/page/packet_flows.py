"""Flows of one or two packet runs on a page: slowdowns by size side by side, and the distribution of their times."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from syncline.describe import units
from syncline.sim.packet.flow_table import FlowTable

_WIDTH, _HEIGHT, _LEFT, _BASE = 900, 260, 46, 226
_COLOURS = ("#2563eb", "#d97706")


def flows_section(runs: Sequence[tuple[str, FlowTable]]) -> str:
    """Return the section of a page about flows, or nothing where none has arrived."""
    kept = [(name, table) for name, table in runs if len(table)]
    if not kept:
        return ""
    return (
        '<h2>Slowdown by size</h2><p class="note">A flow\'s time over its time alone on its path.</p>'
        + _slowdowns(kept)
        + '<h2>Completion times</h2><p class="note">The share of flows that took no longer.</p>'
        + _distribution(kept)
    )


def _slowdowns(runs: Sequence[tuple[str, FlowTable]]) -> str:
    head = "".join(f'<th colspan="3">{escape(name)}</th>' for name, _ in runs)
    parts = "".join("<th>p50</th><th>p99</th><th>p99.9</th>" for _ in runs)
    tables = [{(row.upto_bytes, i == len(rows) - 1): row for i, row in enumerate(rows)} for rows in
              (table.by_size() for _, table in runs)]  # fmt: skip
    lines = []
    for key in sorted({key for table in tables for key in table}, key=lambda each: (each[1], each[0])):
        upto, all_of_them = key
        name = (
            "all"
            if all_of_them
            else "larger"
            if np.isinf(upto)
            else f"up to {upto / 1e6:g} MB"
            if upto >= 1e6
            else f"up to {upto / 1e3:g} kB"
        )
        cells = []
        for table in tables:
            row = table.get(key)
            figures = ("", "", "") if row is None else tuple(f"{x:.2f}" for x in (row.p50, row.p99, row.p999))
            cells += [f"<td>{figure}</td>" for figure in figures]
        count = max(table[key].count for table in tables if key in table)
        lines.append(f'<tr><td class="t">{name}</td><td>{count:,}</td>{"".join(cells)}</tr>')
    return (
        f'<table><tr><th class="t" rowspan="2">size</th><th rowspan="2">flows</th>{head}</tr><tr>{parts}</tr>'
        f"{''.join(lines)}</table>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round times between two powers of ten: decades, 1, 2 and 5 where those are few, or the two ends."""
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        found = [s * 10.0**e for e in decades for s in steps if low - 1e-9 <= np.log10(s * 10.0**e) <= high + 1e-9]
        if len(found) > 2:
            return found
    return [10.0**low, 10.0**high] if high > low else [10.0**low]


def _distribution(runs: Sequence[tuple[str, FlowTable]]) -> str:
    times = np.concatenate([table.time_s for _, table in runs])
    low, high = np.log10(max(times.min(), 1e-9)), np.log10(times.max())
    span = max(high - low, 1e-9)

    def x(time_s: float) -> float:
        return float(_LEFT + (np.log10(max(time_s, 1e-9)) - low) / span * (_WIDTH - _LEFT - 20))

    def y(share: float) -> float:
        return _BASE - share * (_BASE - 16)

    marks = [
        f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y(s):.1f}" y2="{y(s):.1f}" stroke="var(--rule)"/>'
        f'<text x="{_LEFT - 6}" y="{y(s) + 4:.1f}" text-anchor="end" class="tick">{s:g}</text>'
        for s in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    marks += [
        f'<text x="{x(at):.1f}" y="{_BASE + 18}" text-anchor="middle" class="tick">{units.show_time(at)}</text>'
        for at in _ticks(low, high)
    ]
    lines = []
    for (name, table), colour in zip(runs, _COLOURS, strict=False):
        at, share = table.cdf()
        points = " ".join(f"{x(float(a)):.1f},{y(float(s)):.1f}" for a, s in zip(at, share, strict=True))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{_LEFT + 10}" y="{24 + 16 * len(lines) / 2:.0f}" fill="{colour}">{escape(name)}</text>')
    label = escape("Completion times of " + ", ".join(name for name, _ in runs))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}" width="100%">{"".join(marks)}'
        f"{''.join(lines)}</svg>"
    )
