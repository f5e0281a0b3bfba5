"""A simulated sweep as one page: bus bandwidth by size, load of the links, and who talks to whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from syncline.describe import units
from syncline.fabric import Fabric
from syncline.questions.simulate import Simulation
from syncline.questions.simulated.rows import CollectiveRow
from syncline.report.chart.plot import Axis, Floats, Line, matrix, plot
from syncline.report.fabric_picture import draw_svg
from syncline.report.page.packet import watched_page
from syncline.report.page.page import render
from syncline.report.text.simulated.packet import against_flow
from syncline.sim.candidates import NAMES
from syncline.sim.flow.wired import traffic_matrix

MOST_BUSY = 8


def page(answer: Simulation) -> str:
    """Return the page; a cost model without flows has the curve and the table alone."""
    title = f"{NAMES[answer.collective].value.replace('_', '-')} on {answer.cluster}"
    if answer.outcome is not None:
        return watched_page(title, answer.outcome, against_flow(answer.rows[-1]))
    values: dict[str, object] = {"largest": ""}
    if answer.contest is not None and answer.largest is not None and answer.largest.method != "nccl":
        last = answer.largest
        load = answer.contest.utilisation(last)
        traffic, names = traffic_matrix(answer.contest.uncut(last), last.size_bytes)
        values = {
            "largest": units.show_size(answer.rows[-1].size_bytes),
            "busiest": _busiest(answer.fabric, load),
            "picture": draw_svg(answer.fabric, link_load=load),
            "traffic": matrix("traffic", traffic, names, units.show_size),
        }
    return render("simulate", title=title, fabric=answer.fabric, ignores=answer.ignores, rows=answer.rows,
                  curve=bandwidth_curve(answer.rows), **values)  # fmt: skip


def bandwidth_curve(rows: Sequence[CollectiveRow]) -> Markup:
    """Return bus bandwidth over size (logarithmic); points say their numbers when hovered."""
    sizes, rates = [row.size_bytes for row in rows], [row.busbw_Bps for row in rows]
    titles = [f"{units.show_size(row.size_bytes)}: {units.show_bandwidth(row.busbw_Bps)}, {row.algorithm}"
              for row in rows]  # fmt: skip
    every = max(1, len(rows) // 9)
    x = Axis(min(sizes), max(sizes), [(size, units.show_size(size)) for size in sizes[::every]], is_log=True)
    y = Axis.even(max(rates) * 1.04, units.show_bandwidth)
    line = Line("bus bandwidth", sizes, rates, titles=titles, width=2)
    return plot("bus bandwidth by size", [line], x, y, height=320, left=76, has_legend=False)


def _busiest(fabric: Fabric, load: Floats) -> list[list[str]]:
    """Return the busiest links; parallel cables have one name, shown once with their number."""
    counts: dict[str, list[float]] = {}
    for i in np.argsort(-load, kind="stable").tolist():
        name = fabric.link_name(i)
        if name not in counts and len(counts) == MOST_BUSY:
            break
        counts.setdefault(name, []).append(float(load[i]))
    return [
        [f"{name} (busiest of {len(uses)})" if len(uses) > 1 else name, f"{uses[0]:.1%}"]
        for name, uses in counts.items()
    ]
