"""The report of a plan: one self-contained page that an architect can forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from syncline.describe import units
from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.plan.answer import PlanResult
from syncline.plan.scaling import ScalePoint
from syncline.report.chart.bars import MEMORY_COLOURS, PART_COLOURS, bars, scaling_svg, stacked, traffic
from syncline.report.fabric_picture import draw_svg
from syncline.report.page.decision import decision_section, kept
from syncline.report.page.shell import document
from syncline.report.page.step import span_colour, timeline_svg
from syncline.report.plan_money import money_section
from syncline.report.text.interval import between as interval_words
from syncline.report.text.interval import interval_lines
from syncline.report.text.plan import do_first, fault_lines, part_name, per_million, worth_words
from syncline.sim.step.spans import step_timeline
from syncline.sim.step.step import IGNORES
from syncline.timeline import Timeline
from syncline.version import __version__

GIB = 2**30
MAX_DRAWN_STAGES = 32
ZOOM = 0.06


def plan_page(answer: PlanResult, fabric: Fabric, curve: Sequence[ScalePoint] = ()) -> str:
    """Return the page; `curve` is the same job on fewer and more GPUs."""
    plan = answer.best
    style = (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
    title = f"{plan.model} on {plan.num_gpus:,} {plan.gpu}"
    body = [
        decision_section(answer),
        f"<header><h1>{escape(title)}: {units.show_time(plan.predicted.step_time_s)} a step</h1>"
        f'<div class="note">Cluster {escape(plan.cluster)}, job {escape(plan.job)}, '
        f"{plan.tokens_per_step:,} tokens a step, "
        f"{escape(answer.question.job.precision)}. {escape(plan.decision.label)}.</div></header>",
        _cards(answer), _lead(answer),
        "<h2>What to change first</h2>", _actions(answer),
        "<h2>One step, as it would run</h2>", _timeline(answer),
        '<div class="two"><section>', "<h2>Where the time goes</h2>", _time(answer),
        "</section><section>", "<h2>Memory of the fullest GPU</h2>", _memory(answer), "</section></div>",
        '<div class="two"><section>', "<h2>What is sent, by kind and tier</h2>", _traffic(answer),
        "</section><section>", "<h2>More or fewer GPUs</h2>", _curve(answer, curve), "</section></div>",
        "<h2>Cost</h2>", money_section(answer),
        "<h2>Other ways to split it</h2>", _others(answer),
        "<h2>The fabric</h2>", _picture(fabric),
        "<h2>How far to trust this</h2>", _trust(answer),
        f"<footer>syncline {__version__}. {answer.found.num_considered:,} configurations were looked at, "
        f"{answer.found.num_fitting:,} fit in memory; every one was priced by the same model as this page.</footer>",
    ]  # fmt: skip
    return document(title, style, "".join(body))


def _cards(answer: PlanResult) -> str:
    p, cost = answer.best.predicted, answer.best.cost
    share = p.memory_bytes / p.memory_available_bytes if p.memory_available_bytes else 0.0
    cards = [
        (units.show_time(p.step_time_s), _sure(p.interval, units.show_time, "a step")),
        (f"{p.tokens_per_s:,.0f}", "tokens a second"),
        (f"{p.mfu:.1%}", "of the peak rate (MFU)"),
        (f"{p.memory_bytes / GIB:.0f} GiB",
         _sure(p.memory_interval, units.show_size, f"memory, {share:.0%} of a GPU")),
        (f"{p.exposed_comm_s / p.step_time_s:.1%}", "of the step waits for communication"),
        (per_million(cost.cost_per_token_usd) if cost else "n/a",
         _sure(answer.cost_interval or {}, per_million, "per million tokens")),
    ]  # fmt: skip
    inner = "".join(f'<div class="card"><b>{escape(b)}</b><span>{kept(s)}</span></div>' for b, s in cards)
    return f'<div class="cards">{inner}</div>'


def _sure(interval: Mapping[str, Any], show: Callable[[float], str], what: str) -> str:
    return f"{what}, {interval_words(interval, show)}" if interval else what


def _lead(answer: PlanResult) -> str:
    limit, d = answer.best.limit, answer.best.decision
    link = f" (over {limit['then_link']})" if limit.get("then_link") else ""
    words = [f"<b>The limit is {escape(limit['words'])}</b>: {limit['share']:.0%} of the step."]
    if limit["then"] != limit["what"]:
        words.append(f"Next is {escape(limit['then_words'])}{escape(link)} with {limit['then_share']:.1%}.")
    words += [f"Broken: {escape(text)}." for text in fault_lines(answer)]
    words.append(f"What to do first: {kept(do_first(answer, 1)[0].removeprefix('1. '))}.")
    if answer.given is not None:
        slower = answer.given.step_time_s / answer.best.predicted.step_time_s - 1
        fits = "" if answer.given.fits else " and does not fit in memory"
        words.append(f"The split in the job file is {slower:+.1%} in time against this one{fits}.")
    how = f"Gradients: {d.algorithm} exchange in buckets of {units.show_size(d.bucket_bytes)}." if d.algorithm else ""
    return f'<p class="lead">{" ".join(words)} {escape(how)}</p>'


def _actions(answer: PlanResult) -> str:
    first, rows = answer.worthwhile[:3], []
    # Nobody buys switches for a cluster that is rented.
    rented = answer.money is not None and not answer.money.owned
    others = [a for a in answer.actions if a not in first and not (rented and a.kind == "hardware")]
    for a in (*first, *others):
        worth = worth_words(a, answer.run)
        price = units.show_money(a.price_usd) if a.price_usd else ("not known" if a.kind == "hardware" else "$0")
        back = f"{a.payback_years:.1f} years" if a.price_usd and a.payback_years and a.payback_years < 100 else ""
        tone = "good" if a.saving > 0.005 else ("bad" if a.saving < -0.0005 else "")
        rows.append(
            f'<tr class="{"first" if a in first else ""}"><td class="t wide">{kept(a.words)}</td>'
            f'<td class="t"><span class="tag">{escape(a.kind)}</span></td><td>{units.show_time(a.step_time_s)}</td>'
            f'<td class="{tone}">{a.saving:+z.1%}</td><td>{worth}</td><td>{price}</td><td>{back}</td>'
            f'<td class="t note">{escape(a.plan.split(";")[0])}</td></tr>'
        )
    return (
        '<table><thead><tr><th class="t">one change at a time, planned anew</th><th class="t">kind</th><th>step</th>'
        "<th>time saved per token</th><th>worth</th><th>price</th><th>paid back</th>"
        '<th class="t">then split</th></tr>'
        f"</thead>{''.join(rows)}</table><p class='note'>Numerics change what training sees: check convergence first. "
        f"{'' if rented else 'Prices of hardware are switches, optics and cables of the renewed network.'}</p>"
    )


def _timeline(answer: PlanResult) -> str:
    split = answer.best.decision
    if split.pp > MAX_DRAWN_STAGES:
        return f"<p class='note'>{split.pp} stages are too many to draw.</p>"
    try:
        timeline = step_timeline(answer.result)
    except SynclineError as error:
        return f"<p class='note'>{escape(error.message)}</p>"
    drawn = timeline.metadata.get("drawn_micro_batches", split.num_micro)
    cut = "" if drawn == split.num_micro else f" {drawn} of {split.num_micro} micro-batches are drawn."
    key = "".join(f'<li><i style="background:{span_colour(n)}"></i>{escape(n)}</li>' for n in timeline.names)
    note = f"One rank of each stage: compute above, communication below.{cut} Hover for names, times and bytes."
    part = timeline.makespan_s * ZOOM
    views = [
        ("The whole step", timeline),
        (f"Its first {units.show_time(part)}: the pipeline fills", between(timeline, 0.0, part)),
        (f"Its last {units.show_time(part)}: it drains, gradients meet, the optimizer runs",
         between(timeline, timeline.makespan_s - part, timeline.makespan_s)),
    ]  # fmt: skip
    if split.pp == 1:
        views = views[:1]
    drawn_views = "".join(f"<h3>{words}</h3>{timeline_svg(view)}" for words, view in views)
    return f'<p class="note">{note}</p>{drawn_views}<ul class="key">{key}</ul>'


def between(timeline: Timeline, start_s: float, end_s: float) -> Timeline:
    """Return what of a timeline happens between two times, cut at both."""
    spans, base = timeline.spans, timeline.start_s
    kept = spans.take(np.nonzero((spans.end_s > base + start_s) & (spans.start_s < base + end_s))[0])
    clipped = replace(
        kept,
        start_s=np.maximum(kept.start_s, base + start_s),
        end_s=np.minimum(kept.end_s, base + end_s),
    )
    return replace(timeline, spans=clipped)


def _time(answer: PlanResult) -> str:
    p = answer.best.predicted
    parts = sorted(p.parts_s.items(), key=lambda item: -item[1])
    bar = stacked([(part_name(n), v, PART_COLOURS.get(n, "#777")) for n, v in parts], p.step_time_s)
    rows = [(part_name(n), v, units.show_time(v)) for n, v in parts if v > 0 and n != "compute"]
    return bar + "<h3>Beside arithmetic</h3>" + bars(rows, "#e08a1e")


def _memory(answer: PlanResult) -> str:
    p = answer.best.predicted
    parts = sorted(p.memory_by.items(), key=lambda item: -item[1])
    whole = max(p.memory_available_bytes, p.memory_bytes)
    bar = stacked([(n, v, MEMORY_COLOURS.get(n, "#777")) for n, v in parts], whole)
    rows = [(n, v, f"{v / GIB:.1f} GiB") for n, v in parts if v > 0]
    warned = "".join(f'<p class="bad">{escape(text)}</p>' for text in p.warnings)
    left = (p.memory_available_bytes - p.memory_bytes) / GIB
    free = f"{left:.1f} GiB of {p.memory_available_bytes / GIB:.0f} stay free."
    return bar + bars(rows, "#6b7280") + f'<p class="note">{free}</p>{warned}'


def _traffic(answer: PlanResult) -> str:
    p = answer.best.predicted
    shown = traffic(p.comm_bytes) if p.comm_bytes else "<p>Nothing is sent.</p>"
    hidden = f"{p.exposed_comm_s:.3g} s of the step's {p.step_time_s:.4g} s wait for it; the rest hides behind compute."
    return f'{shown}<p class="note">Bytes one GPU sends in one step. {hidden}</p>'


def _curve(answer: PlanResult, curve: Sequence[ScalePoint]) -> str:
    note = (
        "Tokens per second over GPUs, both logarithmic, planned anew for each, global batch unchanged. Dashed: perfect "
        "scaling from the best per GPU; below each number, how much of it is reached. Red: this cluster."
    )
    cheapest = min((p for p in curve if p.cost_per_token_usd), key=lambda p: p.cost_per_token_usd or 0.0, default=None)
    extra = ""
    if cheapest is not None and cheapest.cost_per_token_usd:
        price = per_million(cheapest.cost_per_token_usd)
        extra = f" Tokens are cheapest on {cheapest.num_gpus:,} GPUs: {price} a million."
    return f'{scaling_svg(curve, answer.best.num_gpus)}<p class="note">{note}{extra}</p>'


def _others(answer: PlanResult) -> str:
    best = answer.best.predicted.step_time_s
    rows = "".join(
        f'<tr class="{"first" if not k else ""}"><td class="t">{escape(o.decision.label)}</td>'
        f"<td>{units.show_time(o.predicted.step_time_s)}</td><td>{o.predicted.step_time_s / best - 1:+.1%}"
        f"{' (a tie)' if k and answer.is_tie(o) else ''}</td>"
        f"<td>{o.predicted.memory_bytes / GIB:.0f} GiB</td>"
        f"<td>{o.predicted.exposed_comm_s / o.predicted.step_time_s:.1%}</td></tr>"
        for k, o in enumerate((answer.best, *answer.others))
    )
    heads = '<thead><tr><th class="t">split</th><th>step</th><td></td><th>memory</th><th>waits</th></tr></thead>'
    return f"<table>{heads}{rows}</table>"


def _picture(fabric: Fabric) -> str:
    try:
        return f'<div class="picture">{draw_svg(fabric)}</div>'
    except SynclineError as error:
        return f"<p class='note'>Not drawn: {escape(error.message)}</p>"


def _trust(answer: PlanResult) -> str:
    p = answer.best.predicted
    known = escape(". ".join(interval_lines(p.interval, units.show_time))) if p.interval else ""
    ignores = "".join(f"<li>{escape(text)}</li>" for text in IGNORES)
    taken = ", ".join(f"{escape(str(k))} = {escape(str(v))}" for k, v in answer.result.facts.assumed.items())
    notes = "".join(f"<li>{escape(note)}</li>" for note in answer.notes)
    return (
        f"<p>{known}</p><p>The model ignores:</p><ul class='plain'>{ignores}{notes}</ul>"
        f"<p class='note'>Taken for granted because the job does not say: {taken or 'nothing'}.</p>"
    )
