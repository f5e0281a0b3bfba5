"""A serving plan as one screen of text."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.describe import units
from syncline.planning.serve import IGNORES, Serving, ServingOption
from syncline.questions.serve import ServeAnswer
from syncline.report.text.interval import interval_lines
from syncline.report.text.lines import folded


def serve_lines(found: Serving) -> list[str]:
    """Return the screen."""
    best, load = found.best, found.job.load
    assert load is not None
    lengths = (
        f"prompts of {load.prompt.mean:,.0f} tokens (p99 {load.prompt.p99:,.0f}), answers of {load.answer.mean:,.0f}"
    )
    lines = [f"{found.job.model.name} on {found.cluster}: {load.rate:g} requests/s, {lengths}", ""]
    lines.append(f"  answer     {best.num_gpus:,} {found.gpu}: {replica_words(best)}")
    if not best.enough:
        lines.append(f"             the cluster has {best.all_gpus:,}: not enough")
    a = best.at
    first = f"{units.show_time(_r(a.first_token_p50_s))} (p99 {units.show_time(_r(a.first_token_p99_s))})"
    between = f"{units.show_time(_r(a.between_p50_s))} (p99 {units.show_time(_r(a.between_p99_s))})"
    lines.append(f"  users      first token {first}, between tokens {between}; {slo_words(found)}")
    lines.append(
        f"  yield      {best.tokens_per_s:,.0f} tokens/s, {best.tokens_per_s_per_gpu:,.0f} a GPU; a replica holds "
        f"{a.batch:,.0f} of {best.most_batch:,.0f} sequences, {a.busy:.0%} busy, {a.prefill_share:.0%} with prefill"
    )
    total = sum(best.parts_s.values())
    parts = sorted(best.parts_s.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {units.show_time(_r(value))} ({value / total:.0%})" for name, value in parts)
    lines.append(f"  one token  {shown}")
    saved = f"without its limits the load would take {found.network_usd_share:.0%} fewer GPUs"
    sent = f"; the cache of a prompt is sent in {units.show_time(_r(a.cache_sent_s))}" if best.apart else ""
    lines.append(f"  network    {a.network_share:.0%} of a replica's time; {saved}{sent}")
    lines.append(f"  cost       {cost_words(best)}{f' ({found.note})' if found.note else ''}")
    if (sure := found.cost_interval) is not None:
        lines += [f"             {line}" for line in interval_lines(sure, lambda usd: f"${usd:.3f}")]
    lines += ["", *other_lines(found)]
    lines += ["", f"  assumes    {found.assumed}"] if found.assumed else [""]
    lines += [f"  ignores    {', '.join(IGNORES)}"]
    return [part for line in lines for part in folded(line)]


def replica_words(way: ServingOption) -> str:
    """Return how many replicas there are, and for what."""
    if not way.apart:
        return f"{way.num_replicas:,} replica{'s' * (way.num_replicas != 1)} of {way.label}"
    return f"{way.num_replicas:,} to decode and {way.num_prefill:,} for prefill, each of {way.size}"


def slo_words(found: Serving) -> str:
    """Return whether the limits hold."""
    if found.job.slo.first_token is None and found.job.slo.between_tokens is None:
        return "no limits given"
    return "within the limits" if found.best.keeps_slo else "the limits CANNOT be kept at any load: this is the calmest"


def cost_words(way: ServingOption) -> str:
    """Return what a million answered tokens cost."""
    usd = way.usd_per_million
    if usd is None or way.usd_per_gpu_hour is None:
        return "not priced"
    return f"${usd:.3f} per million answered tokens at {units.show_money(way.usd_per_gpu_hour)} a GPU-hour"


def other_lines(found: Serving) -> list[str]:
    """Return the other ways, side by side."""
    wide = max([10, *(len(way.label) for way in found.others)])
    lines = [f"  {'other ways':<{wide}} {'GPUs':>6} {'first p99':>10} {'between p99':>12} {'$/M tokens':>11}"]
    for way in found.others:
        usd = "n/a" if way.usd_per_million is None else f"{way.usd_per_million:.3f}"
        lines.append(
            f"  {way.label:<{wide}} {way.num_gpus:>6,} {units.show_time(_r(way.at.first_token_p99_s)):>10} "
            f"{units.show_time(_r(way.at.between_p99_s)):>12} {usd:>11}{'' if way.keeps_slo else '  over the limits'}"
        )
    return lines


def _r(value: float) -> float:
    return float(f"{value:.3g}")


def text(answer: ServeAnswer, width: int) -> Iterable[str]:
    """Return how a load is served."""
    return serve_lines(answer.result)
