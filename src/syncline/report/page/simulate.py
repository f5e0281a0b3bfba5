"""What is drawn of a simulated sweep: bus bandwidth by size, load of the links, and who talks to whom."""

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
from syncline.report.page.packet import watched
from syncline.report.page.page import Drawing
from syncline.report.table import columns
from syncline.sim.flow.wired import traffic_matrix

MOST_BUSY = 8
HEADS = ("busiest links", "mean utilisation")


def drawings(answer: Simulation) -> list[Drawing]:
    """Return the curve of several sizes, and where flows were simulated the load of the links and who talks to whom."""
    if answer.outcome is not None:
        return watched([("", answer.outcome)])
    drawn = [Drawing("Bus bandwidth by size", bandwidth_curve(answer.rows))] if len(answer.rows) > 1 else []
    if answer.contest is None or answer.largest is None or answer.largest.method == "nccl":
        return drawn
    last, row = answer.largest, answer.rows[-1]
    load = answer.contest.utilisation(last)
    traffic, names = traffic_matrix(answer.contest.uncut(last), last.size_bytes)
    what = units.show_size(row.size_bytes) + (", best known schedule" if row.best else "")
    return [
        *drawn,
        Drawing(f"Load of the links ({what})", columns(_busiest(answer.fabric, load), HEADS, right=(1,))),
        Drawing("", draw_svg(answer.fabric, link_load=load)),
        Drawing(f"Who talks to whom ({what})", matrix("traffic", traffic, names, units.show_size)),
    ]


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
