"""A serving plan as one screen of text, and several side by side."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.describe import units
from syncline.planning.decide.side_by_side import SURE
from syncline.planning.serve import IGNORES, Serving, ServingOption
from syncline.planning.serving_comparison import ServedCluster, ServingComparison
from syncline.questions.serve import ServeAnswer, ServingComparisonAnswer
from syncline.report.text.lines import between, chance_words, folded, interval_lines


def serve_lines(found: Serving, more: bool = False) -> list[str]:
    """Return the answer in ten lines, or all of it."""
    best, a = found.best, found.best.at
    lines = [f"{found.question}, on {found.cluster}", *(f"  {text}" for text in cannot_words(found)), ""]
    lines.append(f"  answer     {best.num_gpus:,} {found.gpu}: {replica_words(best)}")
    first = f"first token {_time(a.first_token_p50_s)} (p99 {_time(a.first_token_p99_s)})"
    tokens = f"between tokens {_time(a.between_p50_s)} (p99 {_time(a.between_p99_s)})"
    lines.append(f"  users      {first}, {tokens}; {slo_words(found)}")
    lines.append(f"             90 %: between tokens {_ends(found.token_interval.p90)} (median)")
    lines.append(f"  load       keeps up: {chance_words(found.chance)}; {a.busy:.0%} busy, saturates at "
                 f"{best.saturates_at:.3g} requests/s")  # fmt: skip
    lines.append(f"  limit      {limit_words(found)}")
    lines.append(f"  cost       {cost_words(found)}{f' ({found.note})' if found.note else ''}")
    if (sure := found.cost_interval) is not None:
        lines.append(f"             {between(sure, usd_words)}")
    if not more:
        return _folded(
            [*lines, "  --more     other ways, the parts of a token, what the intervals rest on, assumptions"]
        )
    if sure is not None:
        lines += [f"             {line}" for line in interval_lines(sure, usd_words)[1:]]
    lines.append(
        f"  yield      {best.tokens_per_s:,.0f} tokens/s, {best.tokens_per_s_per_gpu:,.0f} a GPU; a replica holds "
        f"{a.batch:,.0f} of {best.most_batch:,.0f} sequences, {a.prefill_share:.0%} of its time with prefill"
    )
    parts = sorted(best.parts_s.items(), key=lambda item: -item[1])
    total = sum(best.parts_s.values())
    lines.append("  one token  " + ", ".join(f"{name} {_time(value)} ({value / total:.0%})" for name, value in parts))
    saved = f"without its limits the load would take {found.network_usd_share:.0%} fewer GPUs"
    sent = f"; the cache of a prompt is sent in {_time(a.cache_sent_s)}" if best.apart else ""
    lines.append(f"  network    {a.network_share:.0%} of a replica's time; {saved}{sent}")
    lines += ["", *other_lines(found), "", *(f"  assumes    {text}" for text in found.assumed)]
    return _folded([*lines, f"  ignores    {', '.join(IGNORES)}"])


def cannot_words(found: Serving) -> list[str]:
    """Return why the load is not served, with the shortest that any way here has; nothing where it is."""
    best, slo, said = found.best, found.job.slo, []
    limits = zip(("first token", "between tokens"), (slo.first_token, slo.between_tokens), found.least_s, strict=True)
    for name, limit, least in limits:
        if limit is not None and least > limit:
            said.append(f"{name}: no way here is under {_time(least)} (p99) even for one user at a time; the limit "
                        f"is {_time(limit)}")  # fmt: skip
    if not best.keeps_slo:
        reasons = said or ["each limit can be kept, but not both together"]
        return ["CANNOT be served within its limits at any load. What comes closest follows.", *reasons]
    return (
        []
        if best.enough
        else [f"CANNOT be served: it takes {best.num_gpus:,} GPUs, the cluster has {best.all_gpus:,}."]
    )


def limit_words(found: Serving) -> str:
    """Return what a token's time goes to."""
    parts, total = found.best.parts_s, sum(found.best.parts_s.values())
    name = max(parts, key=lambda part: parts[part])
    network = f", network {parts['network'] / total:.0%}" if name != "network" else ""
    prefill = f"prefill {found.best.at.prefill_share:.0%} of the time"
    return f"{name}, {parts[name] / total:.0%} of a decoded token{network}; {prefill}"


def replica_words(way: ServingOption) -> str:
    """Return how many replicas there are, and for what."""
    if not way.apart:
        return f"{way.num_replicas:,} replica{'s' * (way.num_replicas != 1)} of {way.label}"
    return f"{way.num_replicas:,} to decode and {way.num_prefill:,} for prefill, each of {way.size}"


def slo_words(found: Serving) -> str:
    """Return whether the limits hold."""
    if found.job.slo.first_token is None and found.job.slo.between_tokens is None:
        return "no limits given"
    return "within the limits" if found.best.keeps_slo else "over the limits"


def cost_words(found: Serving) -> str:
    """Return what a million answered tokens cost, and the GPU-hour with its basis."""
    usd, hour = found.best.usd_per_million, found.best.usd_per_gpu_hour
    if usd is None or hour is None:
        return "not priced"
    return f"{usd_words(usd)} per million answered tokens at {units.show_money(hour)} a GPU-hour, {found.basis}"


def usd_words(usd: float) -> str:
    """Return dollars of a million tokens."""
    return f"${usd:.3f}" if usd < 10 else f"${usd:,.2f}"


def other_lines(found: Serving) -> list[str]:
    """Return the other ways, side by side."""
    wide = max([10, *(len(way.label) for way in found.others)])
    lines = [f"  {'other ways':<{wide}} {'GPUs':>6} {'first p99':>10} {'between p99':>12} {'$/M tokens':>11}"]
    for way in found.others:
        usd = "n/a" if way.usd_per_million is None else f"{way.usd_per_million:.3f}"
        lines.append(
            f"  {way.label:<{wide}} {way.num_gpus:>6,} {_time(way.at.first_token_p99_s):>10} "
            f"{_time(way.at.between_p99_s):>12} {usd:>11}{'' if way.keeps_slo else '  over the limits'}"
        )
    return lines


def comparison_lines(found: ServingComparison) -> list[str]:
    """Return clusters side by side, and which to take."""
    wide = max(len(row.name) for row in found.clusters)
    head = f"  {'':<{wide}}  {'GPUs':>6} {'first p99':>10} {'between p99':>12} {'busy':>5}"
    lines = [found.question, f"  {verdict(found)}", "", f"{head} {'$/GPU-h':>8} {'$/M tokens':>11}  a replica"]
    for row in found.clusters:
        hour = "n/a" if row.usd_per_gpu_hour is None else f"{row.usd_per_gpu_hour:.2f}"
        usd = "n/a" if row.usd_per_million_tokens is None else f"{row.usd_per_million_tokens:.3f}"
        lines.append(
            f"{'=' if row.tied else ' '} {row.name:<{wide}}  {row.num_gpus:>6,} {_time(row.first_token_p99_s):>10} "
            f"{_time(row.between_tokens_p99_s):>12} {row.busy:>5.0%} {hour:>8} {usd:>11}  {row.label}{row_words(row)}"
        )
    lines += [f"  {each.cluster:<{wide}}  left out: {each.reason}" for each in found.left_out]
    ties = "  = within the errors of rates and prices of the cheapest"
    tied = [f"{ties} (under {SURE:.0%} sure which is cheaper)"] if any(row.tied for row in found.clusters) else []
    return [*lines, "", *tied, *(part for note in found.notes for part in folded(f"  assumed: {note}"))]


def row_words(row: ServedCluster) -> str:
    """Return why a cluster does not serve the load; nothing where it does."""
    return "" if row.serves else "; over the limits" if not row.keeps_slo else "; the cluster has fewer GPUs"


def verdict(found: ServingComparison) -> str:
    """Return which is cheapest, and how sure that is against the next."""
    if found.cheapest is None:
        return "NONE serves the load within its limits"
    tied = [row.name for row in found.clusters if row.tied]
    words = f"cheapest: {found.first.name} ({found.first.basis})"
    words += f", tied with {', '.join(tied)}" if tied else ""
    apart = min((row.sure for row in found.clusters if row.sure and not row.tied), default=None)
    return words + (f", {chance_words(apart)} sure against the next" if apart and not tied else "")


def _folded(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in folded(line)]


def _ends(ends: tuple[float, float]) -> str:
    return " to ".join(_time(float(f"{end:.2g}")) for end in ends)


def _time(value: float) -> str:
    return units.show_time(float(f"{value:.3g}"))


def text(answer: ServeAnswer | ServingComparisonAnswer, width: int) -> Iterable[str]:
    """Return how a load is served."""
    if isinstance(answer, ServingComparisonAnswer):
        return comparison_lines(answer.result)
    return serve_lines(answer.result, answer.more)
