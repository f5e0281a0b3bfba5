"""Plans of serving and of a run in phases, as pages: the answer as cards, what it is made of as a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from syncline.describe import units
from syncline.plan.phase.phases import PlannedRun
from syncline.plan.serve import IGNORES, Serving, ServingOption
from syncline.report.page.shell import document
from syncline.report.text.phases import chances, phase_lines
from syncline.report.text.serve import cost_words, replica_words, slo_words

Cards = Sequence[tuple[str, str]]


def serve_page(found: Serving) -> str:
    """Return the page of a serving plan."""
    best, load, at = found.best, found.job.load, found.best.at
    assert load is not None
    title = f"{found.job.model.name} on {found.cluster}: {load.rate:g} requests/s"
    usd = "not priced" if best.usd_per_million is None else f"${best.usd_per_million:.3f}"
    cards = [
        (f"{best.num_gpus:,} GPUs", f"{replica_words(best)} ({found.gpu})"),
        (_time(at.first_token_p50_s), f"to the first token; p99 {_time(at.first_token_p99_s)}"),
        (_time(at.between_p50_s), f"between tokens; p99 {_time(at.between_p99_s)}"),
        (usd, f"a million answered tokens; {best.tokens_per_s:,.0f} tokens/s"),
        (f"{at.network_share:.0%}", "of a replica's time is the network"),
    ]
    total = sum(best.parts_s.values())
    parts = sorted(best.parts_s.items(), key=lambda item: -item[1])
    rows = [(name, _time(value), f"{value / total:.0%}") for name, value in parts]
    lead = f"{slo_words(found).capitalize()}; a replica is {at.busy:.0%} busy, {at.prefill_share:.0%} with prefill."
    short = "" if best.enough else f" The cluster has {best.all_gpus:,} GPUs: not enough."
    others = [_way(way) for way in found.others]
    body = [
        _head(title, cards), f'<p class="lead">{escape(lead + short)}</p>',
        f"<h2>Where a token's time goes</h2>{_table(('part', 'time', 'share'), rows)}",
        "<h2>Other ways</h2>", _table(("way", "GPUs", "first p99", "between p99", "$/M tokens", ""), others),
        f"<p class='note'>Assumes that {escape(found.assumed)}.</p>" if found.assumed else "",
        f"<p class='note'>{escape(cost_words(best))}. Ignores {escape(', '.join(IGNORES))}.</p>",
    ]  # fmt: skip
    return document(title, _style(), "".join(body))


def run_page(found: PlannedRun) -> str:
    """Return the page of a run in phases."""
    title = f"{found.run.name} on {found.cluster}: {len(found.phases)} phase{'s' * (len(found.phases) != 1)}"
    end = found.starts[-1]
    cards = [(f"{found.days:,.1f} days", f"ends {end}" if end else "in all")]
    if found.usd is not None:
        cards.append((units.show_money(found.usd), "in all"))
    if found.days_90 is not None and found.usd_90 is not None:
        low, high = (units.show_money(value) for value in found.usd_90)
        cards.append((f"{low} to {high}", f"nine of ten cases; {found.days_90[0]:.1f} to {found.days_90[1]:.1f} days"))
    rows = []
    for phase, day in zip(found.phases, found.starts, strict=False):
        usd = "-" if phase.forecast is None else units.show_money(phase.forecast.usd)
        rows.append((phase.phase.name, units.show_count(phase.phase.job.tokens or 0.0), f"{phase.num_gpus:,}",
                     _time(phase.step_s), f"{phase.network_share:.0%}", f"{phase.days:.1f}", usd,
                     day.isoformat() if day else "-"))  # fmt: skip
    heads = ("phase", "tokens", "GPUs", "step", "network", "days", "cost", "starts")
    cards += [(text.partition(" of ")[2], text.partition(" with ")[0]) for text in map(_plain, chances(found))]
    told = [*found.assumed, *([found.note] if found.note else [])]
    splits = "".join(f"<li>{escape('; '.join(line.strip() for line in phase_lines(p)))}</li>" for p in found.phases)
    body = [
        _head(title, cards), f"<h2>Phases</h2>{_table(heads, rows)}<h2>Splits</h2><ul class='plain'>{splits}</ul>",
        "".join(f"<p class='note'>{escape(text)}</p>" for text in told),
    ]  # fmt: skip
    return document(title, _style(), "".join(body))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _way(way: ServingOption) -> tuple[str, ...]:
    usd = "n/a" if way.usd_per_million is None else f"{way.usd_per_million:.3f}"
    times = _time(way.at.first_token_p99_s), _time(way.at.between_p99_s)
    return way.label, f"{way.num_gpus:,}", *times, usd, "" if way.keeps_slo else "over the limits"


def _head(title: str, cards: Cards) -> str:
    inner = "".join(f'<div class="card"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in cards)
    return f'<header><h1>{escape(title)}</h1></header><div class="cards">{inner}</div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th{' class=t' if not n else ''}>{escape(head)}</th>" for n, head in enumerate(heads))
    cells = "".join(
        "<tr>"
        + "".join(f"<td{' class=t' if not n else ''}>{escape(cell)}</td>" for n, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead>{cells}</table>"


def _time(value: float) -> str:
    return units.show_time(float(f"{value:.3g}"))


def _style() -> str:
    return (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
