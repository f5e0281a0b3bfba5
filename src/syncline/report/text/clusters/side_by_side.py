"""Clusters side by side as one table, ties marked; a sweep with a bar a value."""

from __future__ import annotations

from syncline.describe import units
from syncline.planning.decide.side_by_side import SURE, ClusterComparison, ComparedCluster
from syncline.report.text.check.run import SHORT_DAYS, days_words
from syncline.report.text.lines import chance_words, folded, per_million

_BAR = 24
GOALS = ("deadline", "budget")


def cluster_lines(found: ClusterComparison) -> list[str]:
    """Return the table and what to read from it."""
    wide = max(len(row.name) for row in found.clusters)
    runs = any(row.run is not None for row in found.clusters)
    head = f"  {'':<{wide}}  {'GPUs':>6} {'step':>9} {'tokens/s':>11} {'MFU':>6} {'waits':>6}"
    head += f" {'$/GPU-h':>8} {'$/M tokens':>10}"
    head += f" {'days':>6} {'run cost':>9}" if runs else ""
    goals = [name for name in GOALS if any(_chance(row, name) is not None for row in found.clusters)]
    head += "".join(f" {name:>8}" for name in goals)
    lines = [found.question, "", f"  {verdict(found)}", "", head + ("  tokens/s" if found.swept else "")]
    most = max(row.tokens_per_s for row in found.clusters)
    for row in found.clusters:
        text = _row(row, wide, runs)
        text += "".join(f" {chance_words(chance):>8}" for name in goals if (chance := _chance(row, name)) is not None)
        lines.append(text + (f"  {'#' * max(1, round(_BAR * row.tokens_per_s / most))}" if found.swept else ""))
    lines += [f"  {each.cluster:<{wide}}  left out: {each.reason}" for each in found.left_out]
    said = [
        *(f"  {text}" for text in bought_lines(found)),
        *(f"  {'warning' if note.startswith('the start ') else 'assumed'}: {note}" for note in found.notes),
    ]
    ties = f"  = within the errors of steps and prices of the cheapest (under {SURE:.0%} sure which is cheaper)"
    said += [ties] if any(row.tied for row in found.clusters) else []
    lines += ["", *said] if said else []
    return [
        part for line in lines[:1] + lines[1:] for part in (folded(line) if line.startswith("  assumed") else [line])
    ]


def _chance(row: ComparedCluster, goal: str) -> float | None:
    """Return how likely the run keeps its deadline or its budget, as `plan` says it."""
    return None if row.run is None else row.run.chance_deadline if goal == "deadline" else row.run.chance_budget


def verdict(found: ClusterComparison) -> str:
    """Return which is cheapest, which are ties, which of them to take, and which is fastest."""
    cheap, fast = found.cheapest_cluster, found.fastest_cluster
    words = f"cheapest: {cheap.name} ({cheap.basis})"
    tied = [row.name for row in found.clusters if row.tied]
    words += f", tied with {', '.join(tied)}" if tied else ""
    words += f"; take {found.advised}, the fastest of them" if found.advised != cheap.name else ""
    apart = min(
        (row for row in found.clusters if row.sure and not row.tied), key=lambda row: row.sure or 0, default=None
    )
    words += f", {sure_words(apart.sure)} sure against {apart.name}" if apart is not None and not tied else ""
    same = [row.name for row in found.clusters if units.show_time(row.step_time_s) == units.show_time(fast.step_time_s)]
    if 1 < len(same) == len(found.clusters):
        return f"{words}; all steps take the same time"
    return f"{words}; fastest: {' and '.join(same if fast.name in same else [fast.name])}"


def sure_words(part: float | None) -> str:
    """Return how sure it is that one is cheaper than another."""
    return f"{part or 0:.0%}" if (part or 0) < 0.99 else "over 99%"


def bought_lines(found: ClusterComparison) -> list[str]:
    """Return what owned clusters ask for at once, against what the cheapest rented one costs a day."""
    rented = [row for row in found.clusters if row.basis != "owned" and row.usd_per_gpu_hour]
    least = min(rented, key=lambda row: 24 * (row.usd_per_gpu_hour or 0.0) * row.num_gpus, default=None)
    lines = []
    for row in found.clusters:
        if row.basis != "owned" or not row.capital_usd or row.run is None:
            continue
        words = f"to buy: {row.name} is {units.show_money(row.capital_usd)} at once"
        words += f", {row.spare_hosts} spare host{'s' * (row.spare_hosts != 1)} with it" if row.spare_hosts else ""
        if least is not None:
            days = row.capital_usd / (24 * (least.usd_per_gpu_hour or 1.0) * least.num_gpus)
            words += f", as much as {days:,.0f} days of {least.name}; the run takes {days_words(row.run.days)}"
        lines.append(words)
    return lines


def _row(row: ComparedCluster, wide: int, runs: bool) -> str:
    price = f"{row.usd_per_gpu_hour:.2f}" if row.usd_per_gpu_hour is not None else "n/a"
    token = per_million(row.cost_per_token_usd).removeprefix("$") if row.cost_per_token_usd is not None else "n/a"
    mark = "=" if row.tied else " "
    text = (
        f"{mark:>1} {row.name:<{wide}}  {row.num_gpus:>6,} {units.show_time(row.step_time_s):>9} "
        f"{row.tokens_per_s:>11,.0f} {row.mfu:>6.1%} {row.exposed_share:>6.1%} {price:>8} {token:>10}"
    )
    if runs and row.run is not None:
        days = f"{row.run.days:,.0f}" if row.run.days >= SHORT_DAYS else f"{row.run.days:.1f}"
        text += f" {days:>6} {units.show_money(row.run.usd):>9}"
    return text
