"""The report of a plan: one self-contained page that an architect can forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from syncline.describe import units
from syncline.errors import SynclineError
from syncline.planning.answer import PlanResult
from syncline.planning.cost.charge import cost_per_token
from syncline.planning.sizes import SizePlan, scaling
from syncline.planning.space import USUAL
from syncline.questions.plan import ClusterAnswer, PlanAnswer
from syncline.report.chart.bars import PART_COLOURS, BarPart, BarRow, bars, stacked
from syncline.report.chart.lanes import timeline_key, timeline_lanes
from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.decision import decision
from syncline.report.page.page import render
from syncline.report.page.side_by_side import clusters_page
from syncline.report.text.check.run import recovery_line
from syncline.report.text.lines import between as interval_words
from syncline.report.text.lines import interval_lines, per_million
from syncline.report.text.plan import do_first, fault_lines, part_name, worth_words
from syncline.sim.step.spans import step_timeline
from syncline.sim.step.step import IGNORES
from syncline.sim.uncertainty import Interval
from syncline.timeline import Timeline

GIB = 2**30
MAX_DRAWN_STAGES = 32
ZOOM = 0.06
MEMORY_COLOURS = {
    "parameters": "#3f73c7", "gradients": "#be185d", "optimizer": "#6b7280", "activations": "#e08a1e",
    "logits": "#b7791f", "buffers": "#15803d", "fragmentation": "#aab2bd",
}  # fmt: skip
MONEY_COLOURS = {
    "hosts": "#3f73c7", "network": "#2d7f6a", "financing": "#7c3aed", "maintenance": "#b7791f", "facility": "#6b7280",
    "racks": "#8f98a3", "power": "#e08a1e", "people": "#be185d",
}  # fmt: skip
TIER_COLOURS = {"scale-up": "#2d7f6a", "network": "#3b6fb0"}
OTHER_COLOUR = "#777777"


def plan_page(answer: PlanResult, curve: Sequence[SizePlan] = ()) -> str:
    """Return the page; `curve` is the same job on fewer and more GPUs."""
    plan = answer.best
    p = plan.predicted
    parts, memory = _largest(p.parts_s), _largest(p.memory_by)
    free = (p.memory_available_bytes - p.memory_bytes) / GIB
    first, rented = answer.worthwhile[:3], answer.money is not None and not answer.money.owned
    assumed = answer.result.facts.assumed
    return render(
        "plan",
        title=f"{plan.model} on {plan.num_gpus:,} {plan.gpu}",
        answer=answer,
        plan=plan,
        p=p,
        decision=decision(answer),
        figures=_figures(answer),
        lead=_lead(answer),
        first=first,
        # Nobody buys switches for a cluster that is rented.
        changes=[*first, *(a for a in answer.actions if a not in first and not (rented and a.kind == "hardware"))],
        worth=worth_words,
        rented=rented,
        timeline=_timeline(answer),
        time_bar=_stacked(parts, p.step_time_s, PART_COLOURS, part_name),
        time_bars=_bars([(part_name(n), v, units.show_time(v)) for n, v in parts if n != "compute"], "#e08a1e"),
        memory_bar=_stacked(memory, max(p.memory_available_bytes, p.memory_bytes), MEMORY_COLOURS),
        memory_bars=_bars([(n, v, f"{v / GIB:.1f} GiB") for n, v in memory], "#6b7280"),
        free=f"{free:.1f} GiB of {p.memory_available_bytes / GIB:.0f} stay free.",
        traffic=_traffic(p.comm_bytes),
        scaling=_scaling(curve, plan.num_gpus),
        cheapest=_cheapest(curve),
        money=_money(answer),
        trust=". ".join(interval_lines(p.interval, units.show_time)),
        ignores=[*IGNORES, *answer.notes],
        assumed=", ".join(f"{name} = {value}" for name, value in assumed.items()),
    )  # fmt: skip


def _largest(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])


def _stacked(
    parts: Sequence[tuple[str, float]], whole: float, colours: Mapping[str, str], name: Callable[[str], str] = str
) -> Markup:
    return stacked([BarPart(name(part), value, colours.get(part, OTHER_COLOUR)) for part, value in parts], whole)


def _bars(rows: Sequence[tuple[str, float, str]], colour: str) -> Markup:
    return bars([BarRow(name, [[BarPart(shown, value, colour)]], [shown]) for name, value, shown in rows])


def _figures(answer: PlanResult) -> list[tuple[str, str]]:
    p, cost = answer.best.predicted, answer.best.cost
    share = p.memory_bytes / p.memory_available_bytes if p.memory_available_bytes else 0.0

    def between(interval: Interval | None, show: Callable[[float], str], what: str) -> str:
        return f"{what}, {interval_words(interval, show)}" if interval else what

    return [
        (units.show_time(p.step_time_s), between(p.interval, units.show_time, "a step")),
        (f"{p.tokens_per_s:,.0f}", "tokens a second"),
        (f"{p.mfu:.1%}", "of the peak rate (MFU)"),
        (f"{p.memory_bytes / GIB:.0f} GiB",
         between(p.memory_interval, units.show_size, f"memory, {share:.0%} of a GPU")),
        (f"{p.exposed_comm_s / p.step_time_s:.1%}", "of the step waits for communication"),
        (per_million(cost.cost_per_token_usd) if cost else "n/a",
         between(answer.cost_interval, per_million, "per million tokens")),
    ]  # fmt: skip


def _lead(answer: PlanResult) -> str:
    limit, split = answer.best.limit, answer.best.decision
    sentences = []
    if limit.then != limit.what:
        link = f" (over {limit.then_link})" if limit.then_link else ""
        sentences.append(f"Next is {limit.then_words}{link} with {limit.then_share:.1%}.")
    sentences += [f"Broken: {text}." for text in fault_lines(answer)]
    sentences.append(f"What to do first: {do_first(answer, 1)[0].removeprefix('1. ')}.")
    if answer.given is not None:
        slower = answer.given.step_time_s / answer.best.predicted.step_time_s - 1
        fits = "" if answer.given.fits else " and does not fit in memory"
        sentences.append(f"The split in the job file is {slower:+.1%} in time against this one{fits}.")
    if split.algorithm:
        sentences.append(
            f"Gradients: {split.algorithm} exchange in buckets of {units.show_size(split.bucket_bytes)}."
        )  # fmt: skip
    return " ".join(sentences)


def _timeline(answer: PlanResult) -> tuple[str, list[tuple[str, Markup]], str]:
    """Return a note on the timeline of a step, its views with their headings, and what colours mean."""
    split = answer.best.decision
    if split.pp > MAX_DRAWN_STAGES:
        return f"{split.pp} stages are too many to draw.", [], ""
    try:
        timeline = step_timeline(answer.result)
    except SynclineError as error:
        return error.message, [], ""
    drawn = timeline.metadata.get("drawn_micro_batches", split.num_micro)
    cut = "" if drawn == split.num_micro else f" {drawn} of {split.num_micro} micro-batches are drawn."
    note = f"One rank of each stage: compute above, communication below.{cut} Hover for names, times and bytes."
    end, part = timeline.makespan_s, timeline.makespan_s * ZOOM
    views = [("The whole step", timeline)]
    if split.pp > 1:
        views += [
            (f"Its first {units.show_time(part)}: the pipeline fills", between(timeline, 0.0, part)),
            (f"Its last {units.show_time(part)}: it drains, gradients meet, the optimizer runs",
             between(timeline, end - part, end)),
        ]  # fmt: skip
    return note, [(words, timeline_lanes(view)) for words, view in views], timeline_key(timeline)


def between(timeline: Timeline, start_s: float, end_s: float) -> Timeline:
    """Return what of a timeline happens between two times, cut at both."""
    spans, base = timeline.spans, timeline.start_s
    inside = spans.take(np.nonzero((spans.end_s > base + start_s) & (spans.start_s < base + end_s))[0])
    clipped = replace(
        inside,
        start_s=np.maximum(inside.start_s, base + start_s),
        end_s=np.minimum(inside.end_s, base + end_s),
    )
    return replace(timeline, spans=clipped)


def _traffic(comm_bytes: Mapping[str, Mapping[str, float]]) -> Markup | None:
    """Return bytes by kind of parallelism, split by tier."""
    rows = [
        BarRow(
            kind,
            [[BarPart(f"{tier}: {units.show_size(size)}", size, TIER_COLOURS[tier]) for tier, size in tiers.items()]],
            [units.show_size(tiers.get(tier, 0.0)) for tier in TIER_COLOURS],
        )
        for kind, tiers in comm_bytes.items()
    ]
    return bars(rows, list(TIER_COLOURS.items())) if rows else None


def _scaling(curve: Sequence[SizePlan], now: int) -> Markup | str:
    """Return tokens per second over GPUs with the line that perfect scaling would be."""
    if len(curve) < 2:
        return "The job fits on one number of GPUs only."
    gpus, rates = [p.num_gpus for p in curve], [p.tokens_per_s for p in curve]
    per_gpu = max(p.tokens_per_s / p.num_gpus for p in curve)
    ideal = [per_gpu * n for n in gpus]
    titles = [f"{p.num_gpus:,} GPUs: {p.tokens_per_s:,.0f} tokens/s, {p.tokens_per_s / best:.0%} of perfect; {p.label}"
              for p, best in zip(curve, ideal, strict=True)]  # fmt: skip
    names = [(n, f"{n:,}\n{rate / best:.0%}") for n, rate, best in zip(gpus, rates, ideal, strict=True)]
    at = [k for k, n in enumerate(gpus) if n == now]
    lines = [
        Line("perfect", gpus, ideal, is_rule=True),
        Line("planned", gpus, rates, titles=titles, colour="var(--accent)", width=2.2),
        Line("now", [gpus[k] for k in at], [rates[k] for k in at], titles=[titles[k] for k in at],
             radii=[6.0] * len(at), dots_only=True, colour="var(--bad)"),
    ]  # fmt: skip
    across = Axis(gpus[0], gpus[-1], names, is_log=True)
    up = Axis.log(min(*rates, *ideal) / 1.1, max(*rates, *ideal) * 1.1, short)
    label = "tokens per second by number of GPUs"
    return plot(label, lines, across, up, width=560, height=300, has_legend=False)


def short(value: float) -> str:
    """Return a number of tokens as a tick.

    >>> short(2e4), short(5e5), short(2.5e6)
    ('20k', '500k', '2.5M')
    """
    factor, letter = next(((f, letter) for f, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= f), (1.0, ""))
    return f"{value / factor:g}{letter}"


def _cheapest(curve: Sequence[SizePlan]) -> str:
    prices = [(p.cost_per_token_usd, p.num_gpus) for p in curve if p.cost_per_token_usd]
    if not prices:
        return ""
    price, num_gpus = min(prices)
    return f"Tokens are cheapest on {num_gpus:,} GPUs: {per_million(price)} a million."


def _money(answer: PlanResult) -> dict[str, object] | None:
    """Return owned against rented, the yearly money of owning, and failures."""
    money, plan = answer.money, answer.best
    if money is None or plan.cost is None:
        return None
    account, step_s, owned = money.account, plan.predicted.step_time_s, money.account.owned
    rates = [("owned", owned.usd_per_gpu_hour)]
    rates += [(quote.label, quote.usd_per_used_gpu_hour(money.utilisation)) for quote in account.quotes]
    rows = []
    for name, rate in sorted(rates, key=lambda pair: pair[1]):
        token = cost_per_token(step_s, plan.tokens_per_step, rate, plan.num_gpus, plan.cost.goodput)
        rows.append((name, token, f"{per_million(token)} ({units.show_money(rate)}/h)"))
    return {
        "trillion": units.show_money(plan.cost.cost_per_token_usd * 1e12),
        "days": f"{1e12 / plan.predicted.tokens_per_s / plan.cost.goodput / 86400:,.0f}",
        "recovery": recovery_line(money.recovery(step_s, plan.num_gpus, plan.decision.replica_gpus)),
        "rates": _bars(rows, "#2d7f6a"),
        "yearly": _stacked(_largest(owned.yearly()), owned.usd_per_year, MONEY_COLOURS),
        "owned": owned,
        "assumed": owned.assumptions,
        "source": account.prices_source,
    }


def page(answer: ClusterAnswer | PlanAnswer) -> str:
    """Return the page of a plan, or of clusters side by side."""
    match answer:
        case ClusterAnswer():
            return clusters_page(answer.result)
        case PlanAnswer():
            found = answer.result
            return plan_page(found, scaling(found.evaluator, found.best, USUAL))
