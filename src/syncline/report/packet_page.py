"""A packet run as one self-contained page: queues, marks, pauses and rates over time, and the first figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline import units
from syncline.sim.packet import Outcome
from syncline.sim.packet.chronicle import queue_rows

Floats = NDArray[np.float64]
COLOURS = ("#0b6bcb", "#d1495b", "#2a9d57", "#b26a00", "#7b4fc9", "#00838f", "#8d6e63", "#c2185b")
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1000px;color:#1b1f24;background:#fff}
h1{font-size:20px} h2{font-size:16px;margin:28px 0 4px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #e3e6ea} td.t,th.t{text-align:left}
.note{color:#57606a} svg{max-width:100%;height:auto} .axis{fill:#57606a;font-size:12px} .grid{stroke:#e3e6ea}
@media (prefers-color-scheme: dark){body{color:#e6e6e6;background:#14171a} td,th{border-color:#333}
.note{color:#9aa} .axis{fill:#9aa} .grid{stroke:#333}}
"""


class Line(NamedTuple):
    """One line of a chart; `rule` is a level drawn across."""

    name: str
    values: Floats
    rule: bool = False


def packet_page(title: str, outcome: Outcome, mark_bytes: tuple[int, int] | None = None) -> str:
    """Return the page of a run that was watched (`Watching`); `mark_bytes` are the depths at which queues mark."""
    watched = outcome.sampled
    parts = [f"<h1>{escape(title)}</h1>", _summary(outcome)]
    if watched is not None and len(watched.time_s) > 2:
        time_us = watched.time_s * 1e6
        names = [outcome.network.fabric.link_name(link) for link in watched.links]
        if names:
            queues = [Line(name, watched.queue_bytes[:, i] / 1e3) for i, name in enumerate(names)]
            if mark_bytes:
                flat = np.full(len(time_us), 1.0)
                queues.append(Line("marks from here", flat * mark_bytes[0] / 1e3, rule=True))
            parts += ["<h2>Queues, KB</h2>", chart_svg(time_us, queues)]
            step_us = np.diff(time_us)
            marks = [Line(name, np.diff(watched.marks[:, i]) / step_us) for i, name in enumerate(names)]
            parts += ["<h2>Marked packets a microsecond</h2>", chart_svg(time_us[1:], marks)]
            rates = watched.link_Bps() / 1e9
            parts += [
                "<h2>Rate of these links, GB/s</h2>",
                chart_svg(time_us[1:], [Line(n, rates[:, i]) for i, n in enumerate(names)]),
            ]
            if watched.paused.any():
                paused = [Line(name, (watched.paused[:, i] != 0).astype(np.float64)) for i, name in enumerate(names)]
                parts += ["<h2>Paused (1) or not</h2>", chart_svg(time_us, paused, height=110)]
        if watched.flows:
            # Coarser than queues: a connection delivers a packet or two a step, which would show as spikes.
            rows = np.arange(0, len(time_us), max(1, len(time_us) // 60))
            goodput = np.diff(watched.flow_bytes[rows], axis=0) / np.diff(time_us[rows])[:, None] / 1e3
            lines = [Line(f"connection {flow}", goodput[:, i]) for i, flow in enumerate(watched.flows)]
            parts += ["<h2>Delivered rate of connections, GB/s</h2>", chart_svg(time_us[rows[1:]], lines)]
    parts.append(_queues(outcome))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def chart_svg(x: Floats, lines: Sequence[Line], width: int = 960, height: int = 240) -> str:
    """Return lines over time (us) as an SVG with axes, a grid and a legend."""
    left, right, top, bottom = 62, 12, 10, 36
    peak = max((float(np.nanmax(line.values)) for line in lines if len(line.values)), default=0.0)
    high = _round_up(peak) if peak > 0 else 1.0
    last = float(x[-1]) or 1.0
    across, down = width - left - right, height - top - bottom
    parts = [f'<svg viewBox="0 0 {width} {height + 18 * _legend_rows(lines)}" role="img">']
    for k in range(5):
        y = top + down * (1 - k / 4)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{high * k / 4:g}</text>')
        at = left + across * k / 4
        parts.append(
            f'<text class="axis" x="{at:.1f}" y="{height - 16}" text-anchor="middle">{last * k / 4:,.4g} us</text>'
        )
    for number, line in enumerate(lines):
        points = " ".join(
            f"{left + across * a / last:.1f},{top + down * (1 - b / high):.1f}"
            for a, b in zip(x, line.values, strict=True)
        )
        dash = ' stroke-dasharray="5 4"' if line.rule else ""
        colour = "#57606a" if line.rule else COLOURS[number % len(COLOURS)]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.4"{dash} points="{points}">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    return "".join(parts) + _legend(lines, left, height) + "</svg>"


def _legend_rows(lines: Sequence[Line]) -> int:
    return -(-min(len(lines), 16) // 4)


def _legend(lines: Sequence[Line], left: int, height: int) -> str:
    parts = []
    for number, line in enumerate(lines[:16]):
        x, y = left + 225 * (number % 4), height + 8 + 18 * (number // 4)
        colour = "#57606a" if line.rule else COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text class="axis" x="{x + 15}" y="{y}">{escape(line.name)}</text>')
    return "".join(parts)


def _round_up(value: float) -> float:
    """Return the next of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten: four even steps on an axis."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value))


def _summary(outcome: Outcome) -> str:
    count, done, options = outcome.counters, outcome.completion, outcome.options
    show = units.show_time
    rows = [
        ("transport, routing", f"{options.transport}, {options.routing}, "
         f"packets of {units.show_size(options.payload_bytes)}"),
        ("state", f"{outcome.state} after {show(outcome.end_of_run_s)}"),
        ("completion", f"mean {show(done.mean_s)}, p50 {show(done.p50_s)}, p99 {show(done.p99_s)}, "
         f"p99.9 {show(done.p999_s)} of {done.count:,} messages"),
        ("packets", f"{count['data_packets']:,} sent, {count['resent_packets']:,} again; {count['marks']:,} marked, "
         f"{count['drops']:,} dropped, {count['trims']:,} trimmed; {count['pauses']:,} pauses, "
         f"{count['timeouts']:,} timeouts"),
        ("base round trip", show(outcome.rtt_s)),
    ]  # fmt: skip
    body = "".join(
        f'<tr><th class="t">{escape(name)}</th><td class="t">{escape(text)}</td></tr>' for name, text in rows
    )
    ignores = escape(", ".join(outcome.to_json()["ignores"]))
    return f'<table>{body}</table><p class="note">Simulated packet by packet; ignores {ignores}.</p>'


def _queues(outcome: Outcome) -> str:
    rows = queue_rows(outcome, 12)
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("deepest", "marks", "drops", "trims", "pauses", "paused"))
    body = "".join(
        f'<tr><td class="t">{escape(row["link"])}</td><td>{units.show_size(row["peak_bytes"])}</td>'
        f"<td>{row['marks']:,}</td>"
        f"<td>{row['drops']:,}</td><td>{row['trims']:,}</td><td>{row['pauses']:,}</td>"
        f"<td>{units.show_time(row['paused_s'])}</td></tr>"
        for row in rows
    )
    return f'<h2>Deepest queues</h2><table><tr><th class="t">link</th>{head}</tr>{body}</table>'
