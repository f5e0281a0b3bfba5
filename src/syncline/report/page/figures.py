"""Plans of serving and of a run in phases, as pages: the answer as cards, what it is made of as a table."""

from __future__ import annotations

from syncline.describe import units
from syncline.plan.phase.phases import PlannedRun
from syncline.plan.serve import IGNORES, Serving
from syncline.report.page.page import render
from syncline.report.text.phases import chances, phase_lines
from syncline.report.text.serve import cost_words, replica_words, slo_words


def serve_page(answer: Serving) -> str:
    """Return the page of a serving plan."""
    best, load, at = answer.best, answer.job.load, answer.best.at
    assert load is not None
    total = sum(best.parts_s.values())
    parts = sorted(best.parts_s.items(), key=lambda item: -item[1])
    short = "" if best.enough else f" The cluster has {best.all_gpus:,} GPUs: not enough."
    lead = f"{slo_words(answer).capitalize()}; a replica is {at.busy:.0%} busy, {at.prefill_share:.0%} with prefill."
    others = [
        (way.label, f"{way.num_gpus:,}", _time(way.at.first_token_p99_s), _time(way.at.between_p99_s),
         "n/a" if way.usd_per_million is None else f"{way.usd_per_million:.3f}",
         "" if way.keeps_slo else "over the limits")
        for way in answer.others
    ]  # fmt: skip
    return render(
        "figures",
        title=f"{answer.job.model.name} on {answer.cluster}: {load.rate:g} requests/s",
        figures=[
            (f"{best.num_gpus:,} GPUs", f"{replica_words(best)} ({answer.gpu})"),
            (_time(at.first_token_p50_s), f"to the first token; p99 {_time(at.first_token_p99_s)}"),
            (_time(at.between_p50_s), f"between tokens; p99 {_time(at.between_p99_s)}"),
            ("not priced" if best.usd_per_million is None else f"${best.usd_per_million:.3f}",
             f"a million answered tokens; {best.tokens_per_s:,.0f} tokens/s"),
            (f"{at.network_share:.0%}", "of a replica's time is the network"),
        ],
        lead=lead + short,
        tables=[
            ("Where a token's time goes", ("<part", "time", "share"),
             [(name, _time(value), f"{value / total:.0%}") for name, value in parts]),
            ("Other ways", ("<way", "GPUs", "first p99", "between p99", "$/M tokens", ""), others),
        ],
        splits=[],
        notes=[
            *([f"Assumes that {answer.assumed}."] if answer.assumed else []),
            f"{cost_words(best)}. Ignores {', '.join(IGNORES)}.",
        ],
    )  # fmt: skip


def run_page(answer: PlannedRun) -> str:
    """Return the page of a run in phases."""
    end = answer.starts[-1]
    cards = [(f"{answer.days:,.1f} days", f"ends {end}" if end else "in all")]
    if answer.usd is not None:
        cards.append((units.show_money(answer.usd), "in all"))
    if answer.days_90 is not None and answer.usd_90 is not None:
        low, high = (units.show_money(usd) for usd in answer.usd_90)
        first, last = answer.days_90
        cards.append((f"{low} to {high}", f"nine of ten cases; {first:.1f} to {last:.1f} days"))
    for text in chances(answer):
        words = " ".join(text.split())
        cards.append((words.partition(" of ")[2], words.partition(" with ")[0]))
    rows = [
        (phase.phase.name, units.show_count(phase.phase.job.tokens or 0.0), f"{phase.num_gpus:,}",
         _time(phase.step_s), f"{phase.network_share:.0%}", f"{phase.days:.1f}",
         "-" if phase.forecast is None else units.show_money(phase.forecast.usd), day.isoformat() if day else "-")
        for phase, day in zip(answer.phases, answer.starts, strict=False)
    ]  # fmt: skip
    heads = ("<phase", "tokens", "GPUs", "step", "network", "days", "cost", "starts")
    return render(
        "figures",
        title=f"{answer.run.name} on {answer.cluster}: {len(answer.phases)} phase{'s' * (len(answer.phases) != 1)}",
        figures=cards,
        lead="",
        tables=[("Phases", heads, rows)],
        splits=["; ".join(line.strip() for line in phase_lines(phase)) for phase in answer.phases],
        notes=[*answer.assumed, *([answer.note] if answer.note else [])],
    )


def _time(value: float) -> str:
    return units.show_time(float(f"{value:.3g}"))
