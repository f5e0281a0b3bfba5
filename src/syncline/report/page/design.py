"""What is drawn of a design: time a token against cost a year."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from syncline.designing.reasons import tied, why_recommended
from syncline.report.chart.bars import BarPart, BarRow, bars
from syncline.report.chart.plot import Axis, Line, legend, plot
from syncline.report.page.page import Drawing

RECOMMENDED, TIED, OTHER = "#b91c1c", "#b7791f", "#3f73c7"

if TYPE_CHECKING:
    from syncline.questions.design import DesignAnswer


def drawings(answer: DesignAnswer) -> list[Drawing]:
    """Return the front as a picture, or the alternatives that were asked for as bars."""
    if answer.grid:
        return [
            Drawing(
                "", alternatives(answer), f"A million tokens on each. Recommended: {why_recommended(answer.front)}."
            )
        ]
    why = f"Red: recommended, {why_recommended(answer.front)}. A larger dot keeps more after a failed switch."
    return [Drawing("", front(answer), why)]


def alternatives(answer: DesignAnswer) -> Markup:
    """Return a bar of the price of a token for each alternative, the recommended one first."""
    rows = []
    for point in answer.front:
        usd = point.usd_per_token * 1e6
        colour = RECOMMENDED if point is answer.best else TIED if tied(answer.best, point) else OTHER
        keeps = f"{point.after_one:.0%} after a failed switch"
        rows.append(BarRow(point.choice.label, [[BarPart("a million tokens", usd, colour)]], (f"${usd:.4f}", keeps)))
    named = (("recommended", RECOMMENDED), ("a tie with it", TIED), ("dearer", OTHER))
    used = {row.bars[0][0].colour for row in rows}
    return bars(rows) + legend([(name, colour) for name, colour in named if colour in used])


def front(answer: DesignAnswer) -> Markup:
    """Return time a token against cost a year; a dot's size is what remains after a failed switch."""
    costs = [point.usd_per_year / 1e6 for point in answer.front]
    times = [point.s_per_token * 1e6 for point in answer.front]
    titles = [f"{point.choice.label}: keeps {point.after_one:.0%}" for point in answer.front]
    radii = [3 + 5 * point.after_one for point in answer.front]
    lines = [
        Line("designs", costs[1:], times[1:], titles=titles[1:], radii=radii[1:], dots_only=True),
        Line("recommended", costs[:1], times[:1], titles=titles[:1], radii=radii[:1], dots_only=True),
    ]
    x, y = _around(costs, "cost of owning, $M a year"), _around(times, "us a token")
    return plot("time a token against cost a year", lines, x, y, height=420, has_legend=False)


def _around(values: list[float], name: str) -> Axis:
    """Return an axis around values that need not begin at 0."""
    low, high = min(values), max(values)
    span = (high - low) or high * 0.01
    ticks = [(low + share * span, f"{low + share * span:.4g}") for share in (0, 0.5, 1)]
    return Axis(low - 0.06 * span, low + 1.06 * span, ticks, name=name)
