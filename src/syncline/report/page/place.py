"""A placement as a page: the rank map on racks, in the scheduler's order and as placed, and what changes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from syncline.describe import units
from syncline.report.page.shell import document
from syncline.report.text.place import text
from syncline.sim.reach import fabric_reach

if TYPE_CHECKING:
    from syncline.place.seats import Order
    from syncline.questions.place import PlaceAnswer

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1180px;padding:0 16px;color:#1b1f24;background:#fff}
h1{font-size:20px} h2{font-size:16px;margin-top:26px} svg{max-width:100%;height:auto}
pre{font-size:12.5px;overflow:auto}
.note{color:#57606a} text{font:11px system-ui,sans-serif;fill:#57606a} .rack{fill:none;stroke:#afb8c1}
.idle{fill:#eaeef2;stroke:#d0d7de} .bars rect{rx:3}
@media (prefers-color-scheme: dark){body{color:#e6e6e6;background:#14171a}.note,text{color:#9aa;fill:#9aa}
.idle{fill:#22272e;stroke:#444c56}.rack{stroke:#444c56}}
"""
_HUES = ("#4c8bf5", "#e08a1e", "#15803d", "#be185d", "#7c3aed", "#0891b2", "#b7791f", "#dc2626", "#4d7c0f", "#6b7280")
_CELL, _NAME, _ROW, _GAP, _TOP = 13, 92, 17, 22, 24
MOST_RACKS = 64


def page(answer: PlaceAnswer) -> str:
    """Return the page of a placement."""
    judge = answer.judge
    seats, job = judge.seats, judge.result.job
    split = job.parallel
    coloured = f"pipeline stages ({split.pp})" if split.pp > 1 else "blocks of neighbouring replicas"
    title = f"{job.name}: {seats.num_ranks:,} ranks on {len(seats.allocation.hosts)} hosts of {answer.fabric.name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _bars(answer),
        f'<p class="note">A box is a {_level(answer)}, a row a host, a square a GPU with its rank. '
        f"Colours are {coloured}.</p>",
        "<h2>As placed</h2>", rank_map_svg(answer, answer.order),
        "<h2>In the scheduler's order</h2>", rank_map_svg(answer, seats.scheduler_order()),
        "<h2>All numbers</h2>", f'<pre tabindex="0">{escape(chr(10).join(text(answer, 120)))}</pre>',
    ]  # fmt: skip
    return document(title, _STYLE, "".join(body))


def _bars(answer: PlaceAnswer) -> str:
    rows = [("placed", answer.step_time_s, "#15803d"), ("scheduler's order", answer.scheduler_s, "#4c8bf5"),
            ("packed order", answer.packed_s, "#9ca3af")]  # fmt: skip
    most = max(value for _, value, _ in rows)
    parts = [
        f'<text x="0" y="{i * 24 + 15}">{name}</text>'
        f'<rect x="120" y="{i * 24 + 3}" width="{value / most * 560:.1f}" height="16" fill="{colour}"/>'
        f'<text x="{126 + value / most * 560:.1f}" y="{i * 24 + 15}">{units.show_time(value)}</text>'
        for i, (name, value, colour) in enumerate(rows)
    ]
    label = 'role="img" aria-label="step times"'
    return f'<svg class="bars" width="800" viewBox="0 0 800 {len(rows) * 24}" {label}>{"".join(parts)}</svg>'


def _level(answer: PlaceAnswer) -> str:
    outer = fabric_reach(answer.fabric).outer
    return outer[0].name if outer else "cluster"


def rank_map_svg(answer: PlaceAnswer, order: Order, width: int = 1140) -> str:
    """Return the ranks on the GPUs of the allocation, rack by rack."""
    seats = answer.judge.seats
    rank_of = {int(gpu): rank for rank, gpu in enumerate(seats.by_launch(order).tolist())}
    names = dict(zip(seats.allocation.hosts, seats.allocation.names, strict=True))
    gpus: dict[int, list[int]] = {}
    for host, row in zip(seats.host.tolist(), seats.gpus.tolist(), strict=True):
        gpus.setdefault(host, []).extend(row)
    racks = _racks(answer, sorted(gpus))
    wide = _NAME + max(len(row) for row in gpus.values()) * _CELL * 2 + 12
    columns = max(1, (width - 8) // (wide + _GAP))
    parts, y = [], 0
    for first in range(0, min(len(racks), MOST_RACKS), columns):
        line = racks[first : first + columns]
        tall = _TOP + max(len(hosts) for _, hosts in line) * _ROW + 8
        for column, (name, hosts) in enumerate(line):
            x = 4 + column * (wide + _GAP)
            parts.append(f'<rect class="rack" x="{x}" y="{y + 2}" width="{wide}" height="{tall - 4}" rx="4"/>')
            parts.append(f'<text x="{x + 6}" y="{y + 17}">{escape(name)}</text>')
            for number, host in enumerate(hosts):
                parts.append(_host(answer, x, y + _TOP + number * _ROW, names[host], gpus[host], rank_of))
        y += tall + 8
    left = len(racks) - MOST_RACKS
    more = f'<text x="4" y="{y + 12}">{left} more are not drawn</text>' if left > 0 else ""
    label = 'role="img" aria-label="ranks on hosts"'
    return f'<svg width="{width}" viewBox="0 0 {width} {y + (18 if more else 0)}" {label}>{"".join(parts)}{more}</svg>'


def _racks(answer: PlaceAnswer, hosts: Sequence[int]) -> list[tuple[str, list[int]]]:
    outer = fabric_reach(answer.fabric).outer
    if not outer:
        return [(answer.fabric.name, list(hosts))]
    found: dict[int, list[int]] = {}
    for host in hosts:
        found.setdefault(int(outer[0].of_host[host]), []).append(host)
    return [(f"{outer[0].name} {number}", mine) for number, mine in found.items()]


def _host(answer: PlaceAnswer, x: int, y: int, name: str, gpus: Sequence[int], rank_of: dict[int, int]) -> str:
    parts = [f'<text x="{x + 6}" y="{y + 11}">{escape(name[-13:])}</text>']
    for number, gpu in enumerate(gpus):
        rank = rank_of.get(gpu)
        left = x + _NAME + number * _CELL * 2
        if rank is None:
            parts.append(f'<rect class="idle" x="{left}" y="{y}" width="24" height="14"><title>idle</title></rect>')
            continue
        words, colour = _role(answer, rank)
        box = f'<rect x="{left}" y="{y}" width="24" height="14" rx="2" fill="{colour}">'
        number_style = 'text-anchor="middle" style="fill:#fff;font-size:9px"'
        parts.append(f"{box}<title>rank {rank}: {words}</title></rect>")
        parts.append(f'<text x="{left + 12}" y="{y + 11}" {number_style}>{rank}</text>')
    return "".join(parts)


def _role(answer: PlaceAnswer, rank: int) -> tuple[str, str]:
    """Return what a rank is in the job, and its colour."""
    seats = answer.judge.seats
    at = {axis: int(value) for axis, value in seats.grid.coordinates(np.array(rank)).items()}
    words = ", ".join(f"{axis} {at[axis]}" for axis in seats.grid.order if seats.grid.sizes[axis] > 1)
    pp = seats.split.pp
    block = at["pp"] if pp > 1 else at["dp"] * len(_HUES) // max(seats.split.dp or 1, 1)
    return words or "alone", _HUES[block % len(_HUES)]
