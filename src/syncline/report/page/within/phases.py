"""A run in phases as a page: the answer as cards, the phases as a table."""

from __future__ import annotations

from syncline.describe import units
from syncline.questions.within.phases import RunAnswer
from syncline.report.page.page import render
from syncline.report.text.within.phases import chances, phase_lines


def page(run: RunAnswer) -> str:
    """Return the page of a run in phases."""
    answer = run.result
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
