"""What is drawn of a design: time a token against cost a year."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.page import Drawing

if TYPE_CHECKING:
    from syncline.questions.design import DesignAnswer


def drawings(answer: DesignAnswer) -> list[Drawing]:
    """Return the front as a picture."""
    red = "recommended" if answer.grid else "cheapest token"
    return [Drawing("", front(answer), f"Red: {red}. A larger dot keeps more after a failed switch.")]


def front(answer: DesignAnswer) -> Markup:
    """Return time a token against cost a year; a dot's size is what remains after a failed switch."""
    costs = [point.usd_per_year / 1e6 for point in answer.front]
    times = [point.s_per_token * 1e6 for point in answer.front]
    titles = [f"{point.choice.label}: keeps {point.after_one:.0%}" for point in answer.front]
    radii = [3 + 5 * point.after_one for point in answer.front]
    lines = [
        Line("designs", costs[1:], times[1:], titles=titles[1:], radii=radii[1:], dots_only=True),
        Line("first", costs[:1], times[:1], titles=titles[:1], radii=radii[:1], dots_only=True),
    ]
    x, y = _around(costs, "cost of owning, $M a year"), _around(times, "us a token")
    return plot("time a token against cost a year", lines, x, y, height=420, has_legend=False)


def _around(values: list[float], name: str) -> Axis:
    """Return an axis around values that need not begin at 0."""
    low, high = min(values), max(values)
    span = (high - low) or high * 0.01
    ticks = [(low + share * span, f"{low + share * span:.4g}") for share in (0, 0.5, 1)]
    return Axis(low - 0.06 * span, low + 1.06 * span, ticks, name=name)
