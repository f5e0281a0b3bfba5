"""A design as one screen of text."""

from __future__ import annotations

from syncline.describe import units
from syncline.design.reasons import flips, millions, why_lost
from syncline.design.search import DesignPoint
from syncline.questions.design import SHOWN, DesignAnswer

IGNORES = (
    "Ranks in order, rack by rack; hash collisions, other jobs and failures during a run are not in these times.",
    "Prices are the catalogue's, mostly recalled street prices: `syncline fabric parts switch` names their sources.",
)


def design_lines(answer: DesignAnswer) -> list[str]:
    """Return the best fabric, the front, and the reasons."""
    best, found = answer.best, answer.found
    jobs = ", ".join(job.model.name for job, _ in answer.jobs)
    lines = [
        f"{jobs} on {best.num_gpus:,} GPUs ({best.choice.host}): {best.choice.label}",
        "",
        f"  {found.num_choices:,} fabrics: {len(found.impossible):,} cannot be built, "
        f"{sum(found.over.values()):,} over a limit, {found.num_bounded:,} lost by their bound, "
        f"{found.num_planned:,} planned; {len(answer.front)} are "
        f"beaten by none{'' if found.complete else ' (interrupted: there may be better ones)'}",
        "",
        "  step        flow level  token     capital   network   power     after 1, 2 failed  fabric",
    ]
    lines += [_row(point) for point in answer.front[:SHOWN]]
    if len(answer.front) > 1:
        other = answer.front[1]
        lines += ["", f"why not {other.choice.label}?", f"  {why_lost(best, other)}"]
    for one in millions(answer.front)[:4]:
        lines.append(
            f"  {units.show_money(one.extra_usd)} more buys {one.faster:.2%} shorter steps "
            f"({one.faster_per_million:.2%} a million): {one.label}"
        )
    turned = flips(answer.front)
    lines.append("")
    lines += [f"optics at {one.factor:g} times their price: {one.label}" for one in turned] or [
        "the same fabric is best with optics at a tenth to ten times their price"
    ]
    return [*lines, "", *IGNORES]


def _row(point: DesignPoint) -> str:
    step = " + ".join(units.show_time(one) for one in point.step_s)
    done = [units.show_time(one) for one in point.executed_s if one is not None]
    return (
        f"  {step:<11} {' + '.join(done) or '-':<11} ${point.usd_per_token * 1e6:<8.4f} "
        f"{units.show_money(point.capital_usd):<9} {units.show_money(point.network_usd):<9} "
        f"{units.show_power(point.power_w):<9} {point.after_one:>7.0%}, {point.after_two:<8.0%} {point.choice.label}"
    )
