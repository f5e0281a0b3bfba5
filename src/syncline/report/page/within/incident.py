"""One incident as a page to attach to a ticket: what, where, from when to when, evidence, effects, cost, its link."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from syncline.describe.units import show_rate
from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.page import render
from syncline.report.text.within.incident import cost, lasted, moment

if TYPE_CHECKING:
    from syncline.questions.within.incident import IncidentReport, PastIncident


def page(answer: IncidentReport) -> str:
    """Return the page of the incident that is told, with the others of the day in a table."""
    told = answer.told
    rows = [
        (str(i.number), moment(i.start_s), lasted(i), i.severity, i.rule, i.place, cost(i)) for i in answer.incidents
    ]
    others = ("The day", ("number", "<began", "<lasted", "<severity", "<rule", "<place", "cost"), rows)
    if told is None:
        return render("figures", title=f"{answer.history}: no incident", figures=[], lead="", chart="", tables=[],
                      splits=[], notes=[])  # fmt: skip
    effects = [(e.rule, e.place, e.observed, e.expected) for e in told.effects]
    tables = [("What it led to", ("<rule", "<place", "<observed", "<expected"), effects)] if effects else []
    return render(
        "figures",
        title=f"{told.rule} at {told.place}",
        figures=[
            (told.severity, "severity"), (moment(told.start_s), "began"), (lasted(told), "lasted"),
            *([(cost(told), "cost")] if cost(told) else []),
        ],
        lead=f"{told.observed}{', expected ' + told.expected if told.expected else ''}. {told.meaning} {told.fix}",
        chart=chart(answer, told),
        tables=[("What was seen", ("<evidence",), [(words,) for words in told.evidence]), *tables, others],
        splits=[],
        notes=[f"{answer.history}, {moment(answer.start_s)} to {moment(answer.end_s)}"],
    )  # fmt: skip


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
