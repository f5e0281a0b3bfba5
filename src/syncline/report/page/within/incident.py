"""What is drawn of an incident: its link, from a minute before it to a minute after."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from syncline.describe.units import show_rate
from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.page import Drawing

if TYPE_CHECKING:
    from syncline.questions.within.incident import IncidentReport, PastIncident


def drawings(answer: IncidentReport) -> list[Drawing]:
    """Return the link of the incident that is told over time, where its place is a link."""
    drawn = Markup("") if answer.told is None else chart(answer, answer.told)
    return [Drawing("", drawn)] if drawn else []


def chart(answer: IncidentReport, told: PastIncident) -> Markup:
    """Return the link of the incident a minute before it to a minute after; nothing where its place is no link."""
    series = answer.series
    if series is None or len(series["wall_s"]) < 2:
        return Markup("")
    at, rate, peak = (np.array(series[name], np.float64) for name in ("wall_s", "rate_Bps", "peak_Bps"))
    most = float(np.nanmax(np.concatenate([rate, peak, [1.0]])))
    ends = [told.start_s, told.end_s if told.end_s is not None else float(at[-1])]
    ticks = [(t, datetime.datetime.fromtimestamp(t).strftime("%H:%M:%S")) for t in np.linspace(at[0], at[-1], 5)]
    lines = [
        Line("highest", at[~np.isnan(peak)], peak[~np.isnan(peak)]),
        Line("mean", at[~np.isnan(rate)], rate[~np.isnan(rate)]),
        Line("the incident", [ends[0], ends[1]], [most, most], low=[0.0, 0.0], colour="var(--c3)"),
    ]
    x = Axis(float(at[0]), float(at[-1]), ticks)
    return plot(f"{told.place} over time", lines, x, Axis.even(most, show_rate), left=84)
