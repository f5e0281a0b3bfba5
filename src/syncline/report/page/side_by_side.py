"""Clusters next to each other, or a sweep, as a page."""

from __future__ import annotations

from markupsafe import Markup

from syncline.describe import units
from syncline.planning.decide.side_by_side import SURE, ClusterComparison, ComparedCluster
from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.decision import Cell
from syncline.report.page.page import render
from syncline.report.text.clusters.side_by_side import bought_lines, sure_words, verdict
from syncline.report.text.lines import per_million


def clusters_page(answer: ClusterComparison) -> str:
    """Return the page."""
    rows = answer.clusters
    return render(
        "clusters",
        title=answer.question,
        verdict=verdict(answer).capitalize(),
        curves=_curves(answer) if answer.swept else [],
        money=[_money(row) for row in rows] if any(row.run for row in rows) else [],
        bought=[text[0].upper() + text[1:] for text in bought_lines(answer)],
        speed=[_speed(row) for row in rows],
        first=next((k for k, row in enumerate(rows) if row is answer.cheapest_cluster), None),
        sure=SURE,
        left_out=[f"{each.cluster}: {each.reason}" for each in answer.left_out],
        notes=answer.notes,
    )


def _name(row: ComparedCluster) -> str:
    return f"{row.name} =" if row.tied else row.name


def _money(row: ComparedCluster) -> list[Cell]:
    cells: list[Cell] = [_name(row), f"{row.num_gpus:,} {row.gpu}", row.basis.removeprefix("rented: ")]
    if row.run is None:
        return [*cells, "", "", "", ""]
    low, high = (units.show_money(end) for end in row.run.usd_90)
    first, last = row.run.days_90
    return [
        *cells,
        (units.show_money(row.run.usd), f"{low} to {high}"),
        (f"{row.run.days:,.0f}", f"{first:,.0f} to {last:,.0f}"),
        units.show_money(row.capital_usd) if row.basis == "owned" and row.capital_usd else "",
        "" if row.sure is None else sure_words(row.sure),
    ]


def _speed(row: ComparedCluster) -> list[Cell]:
    return [
        _name(row), ("", row.label.split(";")[0]), units.show_time(row.step_time_s), f"{row.tokens_per_s:,.0f}",
        f"{row.mfu:.1%}", f"{row.exposed_share:.1%}",
        "" if row.usd_per_gpu_hour is None else f"{row.usd_per_gpu_hour:.2f}",
        "" if row.cost_per_token_usd is None else per_million(row.cost_per_token_usd),
    ]  # fmt: skip


def _curves(answer: ClusterComparison) -> list[Markup]:
    """Return speed and price over what was swept."""
    priced = [(row, row.cost_per_token_usd) for row in answer.clusters if row.cost_per_token_usd is not None]
    speed = [(str(r.value), r.tokens_per_s, f"{r.name}: {r.tokens_per_s:,.0f} tokens/s") for r in answer.clusters]
    money = [(str(r.value), usd * 1e6, f"{r.name}: {per_million(usd)} per M tokens") for r, usd in priced]
    curves = []
    for label, points in (("tokens a second", speed), ("$ a million tokens", money)):
        if len(points) > 1:
            names, values, titles = zip(*points, strict=True)
            x, y = Axis.named(names), Axis.even(max(values), name=f"{label} by {answer.swept}")
            line = Line(label, range(len(values)), values, titles=titles, width=2.2)
            curves.append(plot(y.name, [line], x, y, width=560, height=260, left=80, has_legend=False))
    return curves
