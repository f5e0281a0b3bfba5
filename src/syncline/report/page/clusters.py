"""Clusters side by side, or a sweep, as a page."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from syncline.describe import units
from syncline.plan.decide.side_by_side import SURE, ClusterComparison, ComparedCluster
from syncline.report.chart.tornado import curve_svg
from syncline.report.page.shell import document
from syncline.report.text.clusters import bought_lines, verdict
from syncline.report.text.plan import per_million


def clusters_page(found: ClusterComparison) -> str:
    """Return the page."""
    style = (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
    heads = '<th class="t">paid</th>' + "".join(f"<th>{head}</th>" for head in _HEADS)
    rows = "".join(_row(row, row is found.cheapest) for row in found.rows)
    out = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in found.left_out)
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    body = [
        f'<header><h1>{escape(found.question)}</h1></header><p class="lead">{escape(verdict(found).capitalize())}.</p>',
        _curves(found) if found.swept else "",
        f'<table><thead><tr><th class="t">cluster</th>{heads}<th class="t">split</th></tr></thead>{rows}</table>',
        f"<p class='note'>= within the errors of steps and prices of the cheapest: under {SURE:.0%} sure which is "
        "cheaper. Waits: part of the step in which nothing hides communication.</p>",
        "".join(f"<p>{escape(text[0].upper() + text[1:])}.</p>" for text in bought_lines(found)),
        f"<h2>Left out</h2><ul class='plain'>{out}</ul>" if out else "",
        f"<h2>Assumed</h2><ul class='plain'>{notes}</ul>" if notes else "",
    ]
    return document(found.question, style, "".join(body))


_HEADS = ("GPUs", "step", "tokens/s", "MFU", "waits", "$/GPU-hour", "$/M tokens", "days", "run cost")


def _row(row: ComparedCluster, first: bool) -> str:
    cells = [
        row.basis.removeprefix("rented: "), f"{row.num_gpus:,}", units.show_time(row.step_time_s),
        f"{row.tokens_per_s:,.0f}", f"{row.mfu:.1%}", f"{row.exposed_share:.1%}",
        "" if row.usd_per_gpu_hour is None else f"{row.usd_per_gpu_hour:.2f}",
        "" if row.cost_per_token_usd is None else per_million(row.cost_per_token_usd),
        "" if row.run is None else f"{row.run.days:,.0f}", "" if row.run is None else units.show_money(row.run.usd),
    ]  # fmt: skip
    paid, *numbers = cells
    inner = f'<td class="t">{escape(paid)}</td>' + "".join(f"<td>{escape(cell)}</td>" for cell in numbers)
    name = escape(row.name) + ("&nbsp;=" if row.tied else "")
    split = escape(row.label.split(";")[0])
    lead = f'<tr class="{"first" if first else ""}"><td class="t name">{name}</td>'
    return f'{lead}{inner}<td class="t note">{split}</td></tr>'


def _curves(found: ClusterComparison) -> str:
    speed = [(str(row.value), row.tokens_per_s, f"{row.name}: {row.tokens_per_s:,.0f} tokens/s") for row in found.rows]
    money = [
        (
            str(row.value),
            row.cost_per_token_usd * 1e6,
            f"{row.name}: {per_million(row.cost_per_token_usd)} per M tokens",
        )
        for row in found.rows
        if row.cost_per_token_usd is not None
    ]
    charts = [
        curve_svg(speed, f"tokens a second by {found.swept}"),
        curve_svg(money, f"$ a million tokens by {found.swept}"),
    ]
    return f'<div class="two">{"".join(f"<section>{chart}</section>" for chart in charts)}</div>'
