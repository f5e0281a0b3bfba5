"""What is drawn of a placement: the ranks on racks, in the scheduler's order and as placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from syncline.describe import units
from syncline.report.chart.bars import BarPart, BarRow, bars, ink_on
from syncline.report.chart.svg import Svg
from syncline.report.page.page import Drawing
from syncline.sim.reach import fabric_reach

if TYPE_CHECKING:
    from syncline.placing.seats import Order
    from syncline.questions.place import PlaceAnswer

_HUES = ("#4c8bf5", "#e08a1e", "#15803d", "#be185d", "#7c3aed", "#0891b2", "#b7791f", "#dc2626", "#4d7c0f", "#6b7280")
_CELL, _NAME, _ROW, _GAP, _TOP, _WIDTH = 26, 92, 17, 22, 24, 1140
MOST_RACKS = 64


def drawings(answer: PlaceAnswer) -> list[Drawing]:
    """Return the times of three orders, and the ranks as placed and as the scheduler has them."""
    seats, stages = answer.judge.seats, answer.judge.result.job.parallel.pp
    outer = fabric_reach(answer.fabric).outer
    times = (("placed", answer.step_time_s, "#15803d"), ("scheduler's order", answer.scheduler_s, "#4c8bf5"),
             ("packed order", answer.packed_s, "#9ca3af"))  # fmt: skip
    rows = [
        BarRow(name, [[BarPart(name, time_s, colour)]], [units.show_time(time_s)]) for name, time_s, colour in times
    ]
    coloured = f"pipeline stages ({stages})" if stages > 1 else "blocks of neighbouring replicas"
    box = outer[0].name if outer else "cluster"
    note = f"A box is a {box}, a row a host, a square a GPU with its rank. Colours are {coloured}."
    return [
        Drawing("", bars(rows)),
        Drawing("As placed", rank_map(answer, answer.order), note),
        Drawing("In the scheduler's order", rank_map(answer, seats.scheduler_order())),
    ]


def rank_map(answer: PlaceAnswer, order: Order) -> Markup:
    """Return the ranks on the GPUs of the allocation, rack by rack."""
    seats = answer.judge.seats
    rank_of = {int(gpu): rank for rank, gpu in enumerate(seats.by_launch(order).tolist())}
    names = dict(zip(seats.allocation.hosts, seats.allocation.names, strict=True))
    gpus: dict[int, list[int]] = {}
    for host, row in zip(seats.host.tolist(), seats.gpus.tolist(), strict=True):
        gpus.setdefault(host, []).extend(row)
    racks = _racks(answer, sorted(gpus))
    wide = _NAME + max(len(row) for row in gpus.values()) * _CELL + 12
    columns = max(1, (_WIDTH - 8) // (wide + _GAP))
    svg, y = Svg(_WIDTH, 0, "ranks on hosts", is_fixed=True), 0
    for first in range(0, min(len(racks), MOST_RACKS), columns):
        line = racks[first : first + columns]
        tall = _TOP + max(len(hosts) for _, hosts in line) * _ROW + 8
        for column, (name, hosts) in enumerate(line):
            x = 4 + column * (wide + _GAP)
            svg.add("rect", x=x, y=y + 2, width=wide, height=tall - 4, rx=4, class_="rack")
            svg.text(x + 6, y + 17, name)
            for number, host in enumerate(hosts):
                top = y + _TOP + number * _ROW
                svg.text(x + 6, top + 11, names[host][-13:])
                for k, gpu in enumerate(gpus[host]):
                    _seat(svg, answer, x + _NAME + k * _CELL, top, rank_of.get(gpu))
        y += tall + 8
    if len(racks) > MOST_RACKS:
        svg.text(4, y + 12, f"{len(racks) - MOST_RACKS} more are not drawn")
        y += 18
    svg.height = y
    return svg.markup()


def _racks(answer: PlaceAnswer, hosts: Sequence[int]) -> list[tuple[str, list[int]]]:
    outer = fabric_reach(answer.fabric).outer
    if not outer:
        return [(answer.fabric.name, list(hosts))]
    racks: dict[int, list[int]] = {}
    for host in hosts:
        racks.setdefault(int(outer[0].of_host[host]), []).append(host)
    return [(f"{outer[0].name} {number}", mine) for number, mine in racks.items()]


def _seat(svg: Svg, answer: PlaceAnswer, x: float, y: float, rank: int | None) -> None:
    """Draw a GPU with its rank, in the colour of its pipeline stage or block of replicas."""
    if rank is None:
        svg.add("rect", title="idle", x=x, y=y, width=24, height=14, class_="idle")
        return
    seats = answer.judge.seats
    at = {axis: int(value) for axis, value in seats.grid.coordinates(np.array(rank)).items()}
    words = ", ".join(f"{axis} {at[axis]}" for axis in seats.grid.order if seats.grid.sizes[axis] > 1)
    block = at["pp"] if seats.split.pp > 1 else at["dp"] * len(_HUES) // max(seats.split.dp or 1, 1)
    colour = _HUES[block % len(_HUES)]
    svg.add("rect", title=f"rank {rank}: {words or 'alone'}", x=x, y=y, width=24, height=14, rx=2, fill=colour)
    svg.text(x + 12, y + 11, str(rank), class_="rank", style=f"fill:{ink_on(colour)}")
