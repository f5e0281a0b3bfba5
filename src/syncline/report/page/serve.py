"""A serving plan as a page: the answer as cards, what it is made of as tables."""

from __future__ import annotations

from syncline.describe import units
from syncline.planning.serve import IGNORES
from syncline.questions.serve import ServeAnswer
from syncline.report.page.page import render
from syncline.report.text.serve import cost_words, replica_words, slo_words


def page(serving: ServeAnswer) -> str:
    """Return the page of a serving plan."""
    answer = serving.result
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


def _time(value: float) -> str:
    return units.show_time(float(f"{value:.3g}"))
