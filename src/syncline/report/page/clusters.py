"""Clusters side by side, or a sweep, as a page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib.resources import files

from syncline.describe import units
from syncline.plan.decide.side_by_side import SURE, ClusterComparison, ComparedCluster
from syncline.report.chart.tornado import curve_svg
from syncline.report.page.shell import document
from syncline.report.text.clusters import bought_lines, sure_words, verdict
from syncline.report.text.plan import per_million


def clusters_page(found: ClusterComparison) -> str:
    """Return the page."""
    style = (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
    out = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in found.left_out)
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    body = [
        f'<header><h1>{escape(found.question)}</h1></header><p class="lead">{escape(verdict(found).capitalize())}.</p>',
        _curves(found) if found.swept else "",
        _table(found, ("what", "paid"), _MONEY, _money) if any(row.run for row in found.rows) else "",
        "".join(f"<p>{escape(text[0].upper() + text[1:])}.</p>" for text in bought_lines(found)),
        "<h2>How fast</h2>" if any(row.run for row in found.rows) else "",
        _table(found, ("split",), _HEADS, _speed),
        f"<p class='note'>= within the errors of steps and prices of the cheapest: under {SURE:.0%} sure which is "
        "cheaper. Small figures: what 9 of 10 cases lie between. Waits: part of the step in which nothing hides "
        "communication.</p>",
        f"<h2>Left out</h2><ul class='plain'>{out}</ul>" if out else "",
        f"<h2>Assumed</h2><ul class='plain'>{notes}</ul>" if notes else "",
    ]
    return document(found.question, style, "".join(body))


_MONEY = ("run cost", "days", "to buy", "sure to be dearer")
_HEADS = ("step", "tokens/s", "MFU", "waits", "$/GPU-hour", "$/M tokens")


def _table(
    found: ClusterComparison, words: tuple[str, ...], heads: tuple[str, ...],
    cells: Callable[[ComparedCluster], tuple[list[str], list[str]]],
) -> str:  # fmt: skip
    """Return one table of all clusters: columns of words, then of numbers."""
    head = "".join(f'<th class="t">{word}</th>' for word in words) + "".join(f"<th>{head}</th>" for head in heads)
    rows = ""
    for row in found.rows:
        told, numbers = cells(row)
        inner = "".join(f'<td class="t">{cell}</td>' for cell in told) + "".join(f"<td>{cell}</td>" for cell in numbers)
        name = escape(row.name) + ("&nbsp;=" if row.tied else "")
        rows += f'<tr class="{"first" if row is found.cheapest else ""}"><td class="t name">{name}</td>{inner}</tr>'
    return f'<table class="options"><thead><tr><th class="t">cluster</th>{head}</tr></thead>{rows}</table>'


def _money(row: ComparedCluster) -> tuple[list[str], list[str]]:
    what = [f"{row.num_gpus:,} {escape(row.gpu)}", escape(row.basis.removeprefix("rented: "))]
    if row.run is None:
        return what, ["", "", "", ""]
    low, high = (units.show_money(end) for end in row.run.usd_90)
    first, last = row.run.days_90
    return what, [
        f"{units.show_money(row.run.usd)} {_small(f'{low} to {high}')}",
        f"{row.run.days:,.0f} {_small(f'{first:,.0f} to {last:,.0f}')}",
        units.show_money(row.capital_usd) if row.basis == "owned" and row.capital_usd else "",
        "" if row.sure is None else sure_words(row.sure),
    ]


def _small(text: str) -> str:
    return f'<span class="note">{escape(text)}</span>'


def _speed(row: ComparedCluster) -> tuple[list[str], list[str]]:
    return [f'<span class="note">{escape(row.label.split(";")[0])}</span>'], [
        units.show_time(row.step_time_s), f"{row.tokens_per_s:,.0f}", f"{row.mfu:.1%}", f"{row.exposed_share:.1%}",
        "" if row.usd_per_gpu_hour is None else f"{row.usd_per_gpu_hour:.2f}",
        "" if row.cost_per_token_usd is None else per_million(row.cost_per_token_usd),
    ]  # fmt: skip


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
