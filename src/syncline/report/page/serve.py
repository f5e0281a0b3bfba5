"""A serving plan as a page: the answer as cards, what it is made of as tables."""

from __future__ import annotations

from syncline.describe import units
from syncline.planning.serve import IGNORES
from syncline.planning.serving_comparison import ServingComparison
from syncline.questions.serve import ServeAnswer, ServingComparisonAnswer
from syncline.report.page.page import render
from syncline.report.text.lines import between, chance_words
from syncline.report.text.serve import cannot_words, cost_words, replica_words, row_words, slo_words, usd_words, verdict


def page(serving: ServeAnswer | ServingComparisonAnswer) -> str:
    """Return the page of a serving plan, or of several side by side."""
    if isinstance(serving, ServingComparisonAnswer):
        return _comparison(serving.result)
    answer = serving.result
    best, at = answer.best, answer.best.at
    total = sum(best.parts_s.values())
    parts = sorted(best.parts_s.items(), key=lambda item: -item[1])
    short = "".join(f" {line}" for line in cannot_words(answer))
    lead = (
        f"{slo_words(answer).capitalize()}; keeps up with the load: {chance_words(answer.chance)}; {at.busy:.0%} busy."
    )
    sure = answer.cost_interval
    others = [
        (way.label, f"{way.num_gpus:,}", _time(way.at.first_token_p99_s), _time(way.at.between_p99_s),
         "n/a" if way.usd_per_million is None else f"{way.usd_per_million:.3f}",
         "" if way.keeps_slo else "over the limits")
        for way in answer.others
    ]  # fmt: skip
    return render(
        "figures",
        title=f"{answer.question}, on {answer.cluster}",
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
            *(f"Assumes {text}." for text in answer.assumed),
            *([f"A million tokens, {between(sure, usd_words)}; from {sure.basis}."] if sure else []),
            f"{cost_words(answer)}. Ignores {', '.join(IGNORES)}.",
        ],
    )  # fmt: skip


def _comparison(found: ServingComparison) -> str:
    rows = [
        (row.name, row.basis, f"{row.num_gpus:,} {row.gpu}", row.label, _time(row.first_token_p99_s),
         _time(row.between_tokens_p99_s), f"{row.busy:.0%}",
         "n/a" if row.usd_per_million_tokens is None else usd_words(row.usd_per_million_tokens),
         "a tie" if row.tied else row_words(row).removeprefix("; "))
        for row in found.clusters
    ]  # fmt: skip
    columns = ("<cluster", "<paid", "<GPUs", "<a replica", "first p99", "between p99", "busy", "$/M tokens", "")
    return render(
        "figures", title=found.question, figures=[], lead=verdict(found).capitalize() + ".",
        tables=[("Clusters", columns, rows)], splits=[],
        notes=[*(f"{each.cluster} is left out: {each.reason}" for each in found.left_out), *found.notes],
    )  # fmt: skip


def _time(value: float) -> str:
    return units.show_time(float(f"{value:.3g}"))
