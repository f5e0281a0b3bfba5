"""A run of several phases as one screen of text."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.describe import units
from syncline.planning.phase.phases import PlannedPhase, PlannedRun
from syncline.questions.within.phases import RunAnswer
from syncline.report.text.lines import folded


def run_lines(found: PlannedRun) -> list[str]:
    """Return the screen."""
    lines = [f"{found.run.name} on {found.cluster}: {len(found.phases)} phase{'s' * (len(found.phases) != 1)}", ""]
    lines += [f"  assumed    {text}" for text in found.assumed] + [""] * bool(found.assumed)
    lines.append(
        f"  {'phase':<18} {'tokens':>8} {'GPUs':>7} {'step':>9} {'network':>8} {'days':>8} {'cost':>9}  starts"
    )
    for phase, day in zip(found.phases, found.starts, strict=False):
        lines.append(_row(phase) + (f"  {day.isoformat()}" if day else "  -"))
    usd = "not priced" if found.usd is None else units.show_money(found.usd)
    end = found.starts[-1]
    lines.append(f"  {'in all':<18} {'':>8} {'':>7} {'':>9} {'':>8} {found.days:>8.1f} {usd:>9}  {_end(end)}")
    if found.days_90 is not None and found.usd_90 is not None:
        low, high = found.days_90
        cheap, dear = (units.show_money(value) for value in found.usd_90)
        lines.append(f"  90 %       {low:.1f} to {high:.1f} days, {cheap} to {dear} (phases off together)")
    lines += [f"  {text}" for text in chances(found)]
    for phase in found.phases:
        lines += ["", *phase_lines(phase)]
    if found.note:
        lines += ["", f"  note       {found.note}"]
    return [part for line in lines for part in folded(line)]


def _row(phase: PlannedPhase) -> str:
    usd = "-" if phase.forecast is None else units.show_money(phase.forecast.usd)
    tokens = units.show_count(phase.phase.job.tokens or 0.0)
    step = units.show_time(float(f"{phase.step_s:.3g}"))
    return (
        f"  {phase.phase.name[:18]:<18} {tokens:>8} {phase.num_gpus:>7,} {step:>9} "
        f"{phase.network_share:>8.0%} {phase.days:>8.1f} {usd:>9}"
    )


def _end(end: object) -> str:
    return f"ends {end}" if end else ""


def chances(found: PlannedRun) -> list[str]:
    """Return how likely deadline and budget are kept."""
    out = []
    for name, chance in (("deadline", found.chance_deadline), ("budget", found.chance_budget)):
        if chance is not None:
            words = "above 95 %" if chance > 0.95 else "below 5 %" if chance < 0.05 else f"{chance:.0%}"
            out.append(f"{name:<10} kept with a chance of {words}")
    return out


def phase_lines(phase: PlannedPhase) -> list[str]:
    """Return the split of a phase, what limits it and what it sends."""
    best, name = phase.plan.best, phase.phase.name
    share = best.limit.share
    sent = units.show_size(phase.nic_bytes_per_step)
    lines = [
        f"  {name}: {best.decision.label}",
        f"             limited by {best.limit.words} ({share:.0%}); a GPU sends {sent} over the network a step",
    ]
    if phase.reinforced is not None:
        r = phase.reinforced
        rollout, train, weights = (
            units.show_time(float(f"{value:.3g}")) for value in (r.rollout_s, r.train_s, r.weights_s)
        )
        lines.append(f"             {r.label}: rollout {rollout}, training {train}, weights moved in {weights}")
    return lines


def text(answer: RunAnswer, width: int) -> Iterable[str]:
    """Return the phases of a run."""
    return run_lines(answer.result)
