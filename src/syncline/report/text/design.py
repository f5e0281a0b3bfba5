"""A design as one screen of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from syncline.describe import units
from syncline.designing.point import DesignPoint
from syncline.designing.reasons import flips, millions, tied, why_lost, why_recommended
from syncline.fabric.catalog import load_catalog
from syncline.planning.evaluate import RESOLUTION
from syncline.planning.named_job import assumed_batch
from syncline.questions.design import SHOWN, DesignAnswer

IGNORES = (
    "Ranks in order, rack by rack; hash collisions, other jobs and failures during a run are not in these times.",
    "Prices are the catalogue's, mostly street-price estimates: `syncline fabric parts switch` names their sources.",
)


#: Heads of the front's table and how wide each column is in text at least.
HEADS = {
    "step": 11, "$/M tokens": 11, "capital": 9, "network": 9, "power": 9, "after 1, 2 failed": 18, "idle": 5,
    "fabric": 0,
}  # fmt: skip
BILL = {
    "hosts": 9, "network": 9, "of it optics": 12, "racks": 5, "spare switch, host": 18,
    "a failed switch costs": 21, "fabric": 0,
}  # fmt: skip


def design_lines(answer: DesignAnswer) -> list[str]:
    """Return the best fabric, the front, and the reasons; or the grid that was asked for."""
    if answer.grid:
        return grid_lines(answer)
    return [*answer_lines(answer), "", *front_table(answer.front[:SHOWN]), *reason_lines(answer)]


def grid_lines(answer: DesignAnswer) -> list[str]:
    """Return every alternative that was asked for, with its bill and what failures cost."""
    best = answer.best
    ties = [point for point in answer.front if point is not best and tied(best, point)]
    jobs = ", ".join(job.model.name for job, _ in answer.jobs)
    lines = [
        f"{jobs} on {best.num_gpus:,} GPUs ({best.choice.host}): {best.choice.label}",
        *(f"  assumed: {text}" for text in (assumed_batch(job) for job, _ in answer.jobs) if text),
        f"  recommended: {why_recommended(answer.front)}", "",
        *front_table(answer.front, ties), *([f"  =: a tie with the first, within {RESOLUTION:.0%}"] * bool(ties)),
        *(f"  {label}: {why}" for label, why in answer.found.impossible.items()), "",
    ]  # fmt: skip
    return [*lines, *bill_table(answer.front), "", *IGNORES]


def bill_table(points: Sequence[DesignPoint]) -> list[str]:
    """Return the bills of fabrics, what spares cost, and what a failed switch costs until it is replaced."""
    rows, money = [], units.show_money
    for point in points:
        spare = load_catalog().switch(point.choice.switch).price_usd or 0.0
        hosts, lost = point.capital_usd - point.network_usd, 1 - point.after_one
        rows.append([
            money(hosts), money(point.network_usd), money(point.optics_usd), f"{point.racks:,}",
            f"{money(spare)}, {money(hosts / point.choice.num_hosts)}",
            f"{point.worst}: {lost:.0%}, {money(lost * point.usd_per_year / 8760)} an hour", point.choice.label,
        ])  # fmt: skip
    return _table(BILL, rows)


def front_table(points: Sequence[DesignPoint], ties: Sequence[DesignPoint] = ()) -> list[str]:
    """Return points as rows under their heads, ties marked."""
    return _table(HEADS, [front_row(point) for point in points], ["= " * (point in ties) for point in points])


def _table(heads: Mapping[str, int], rows: Sequence[list[str]], marks: Sequence[str] = ()) -> list[str]:
    """Return rows under their heads; several jobs have a time each in one cell, which widens its column."""
    rows = [list(heads), *rows]
    widths = [wide and max(wide, *map(len, cells))
              for wide, cells in zip(heads.values(), zip(*rows, strict=True), strict=True)]  # fmt: skip
    lines = [" ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [f"{mark:<2}{line}" for mark, line in zip_longest(["", *marks], lines, fillvalue="")]


def answer_lines(answer: DesignAnswer) -> list[str]:
    """Return the best fabric and what was looked at."""
    best, found = answer.best, answer.found
    jobs = ", ".join(job.model.name for job, _ in answer.jobs)
    frail = found.over.get("resilience", 0)
    kept = (
        f"{frail:,} keep less than {answer.limits.after_one:.0%} after one failed switch (--survive), " if frail else ""
    )
    return [
        f"{jobs} on {best.num_gpus:,} GPUs ({best.choice.host}): {best.choice.label}",
        *(f"  assumed: {text}" for text in (assumed_batch(job) for job, _ in answer.jobs) if text),
        f"  recommended: {why_recommended(answer.front)}",
        "",
        f"  {found.num_choices:,} fabrics: {len(found.impossible):,} cannot be built, "
        f"{kept}{sum(found.over.values()) - frail:,} over a limit, {found.num_bounded:,} lost by their bound, "
        f"{found.num_planned:,} planned; {len(answer.front)} are "
        f"beaten by none{'' if found.complete else ' (interrupted: there may be better ones)'}",
    ]


def reason_lines(answer: DesignAnswer) -> list[str]:
    """Return what stands below the front: what ran, why the runner-up lost, what more money buys, where it flips."""
    best, lines = answer.best, _below(answer)
    if len(answer.front) > 1:
        other = answer.front[1]
        lines += ["", f"why not {other.choice.label}?", f"  {why_lost(best, other)}"]
    for one in millions(answer.front)[:4]:
        lines.append(
            f"  {units.show_money(one.extra_usd)} more than {one.baseline} buys {one.faster:.2%} shorter steps "
            f"({one.faster_per_million:.2%} a million): {one.label}"
        )
    turned = flips(answer.front)
    lines.append("")
    lines += [f"optics at {one.factor:g} times their price: {one.label}" for one in turned] or [
        "the same fabric is best with optics at a tenth to ten times their price"
    ]
    return [*lines, *_switching(answer), *_growth(answer), *_storage(answer), "", *IGNORES]


def _below(answer: DesignAnswer) -> list[str]:
    """Return which of the shown points tie with the best, and which could not be executed."""
    shown = answer.front[:SHOWN]
    tied = [p for p in shown[1:] if p.usd_per_token <= (1 + RESOLUTION) * answer.best.usd_per_token]
    cannot = sum(not point.executed for point in shown)
    lines = [f"  {len(tied)} cost a token within {RESOLUTION:.0%} of the first: a tie"] if tied else []
    if cannot:
        lines.append(
            f"  {cannot} cannot be executed: the flow level has no sums in switches and no cards that compress"
        )
    return [*lines, f"  left out    {answer.left_out}"] if answer.left_out else lines


def _switching(answer: DesignAnswer) -> list[str]:
    """Return whether circuits that move within a step pay; between jobs they cost one move."""
    if not answer.switching:
        return []
    one = max(answer.switching, key=lambda each: each.gain_at_most_s)
    gain, spent = units.show_time(one.gain_at_most_s), units.show_time(2 * one.reconfiguration_s)
    verdict = "may pay" if one.pays else "does not pay"
    moved = f"moving them within a step {verdict}: it gains {gain} at most and costs {spent}"
    return ["", f"circuits are laid for each job; {moved} ({one.label})"]


def _growth(answer: DesignAnswer) -> list[str]:
    if answer.growth is None:
        return []
    money = units.show_money
    if not answer.growth:
        why = next(iter(answer.cannot_grow.values()), "")
        return ["", f"none of these fabrics grows so far: {why}"]
    best = answer.growth[0]
    lines = ["", f"to {best.later_gpus:,} GPUs without recabling, switches and cables (cheapest in all steps first):",
             "  now       of it ahead  later     switches now, later  cables now, later  fabric"]  # fmt: skip
    for one in answer.growth[:4]:
        then = f"; hosts of the next generation may join by {one.next_link}" if one.next_link else ""
        lines.append(
            f"  {money(one.now_usd):<9} {money(one.ahead_usd):<12} {money(one.later_usd):<9} "
            f"{one.switches_now:>8,}, {one.switches_later:<9,} {one.cables_now:>8,}, {one.cables_later:<8,} "
            f"{one.choice.label}{then}"
        )
    if len(best.steps) > 2:
        lines += ["", f"step by step, {best.choice.label}:"]
        lines += [f"  {step.gpus:>7,} GPUs: {money(step.usd)}, {step.switches:,} switches and {step.cables:,} cables; "
                  f"{money(step.ahead_usd)} of what lies then is bought ahead" for step in best.steps]  # fmt: skip
    if answer.cannot_grow:
        label, why = next(iter(answer.cannot_grow.items()))
        lines.append(f"  {len(answer.cannot_grow):,} cannot, such as {label}: {why}")
    return lines


def _storage(answer: DesignAnswer) -> list[str]:
    found = answer.storage
    if found is None:
        return []
    need = found.need
    lines = [
        "",
        f"storage: {need.read_Bps / 1e6:,.3g} MB/s read, a checkpoint of {found.checkpoint_bytes / 1e12:.3g} TB "
        f"written at {need.write_Bps / 1e9:.3g} GB/s and read back at {need.restore_Bps / 1e9:.3g}; "
        f"{found.servers:,} server{'s' if found.servers > 1 else ''} of 25 GB/s",
        f"front end of its own: {found.link} a host, {units.show_money(found.front_usd)} of switches and cables, "
        f"{units.show_power(found.front_power_w)}",
    ]  # fmt: skip
    if found.converged is not None and found.converged_behind is not None:
        lines.append(
            f"over the training network instead: {found.of_training_line:.2%} of a host's ports while a checkpoint is "
            f"written; a step is {found.converged:.2%} longer then, {found.converged_behind:.2%} in a class behind "
            "training (flow level)"
        )
    return lines


def front_row(point: DesignPoint) -> list[str]:
    """Return a point of the front by the heads of its table."""
    return [
        " + ".join(units.show_time(one) for one in point.step_s), f"{point.usd_per_token * 1e6:.4f}",
        units.show_money(point.capital_usd), units.show_money(point.network_usd), units.show_power(point.power_w),
        f"{point.after_one:.0%}, {point.after_two:.0%}", f"{point.idle_gpus:,}" if point.idle_gpus else "-",
        point.choice.label + ("" if point.executed else " (closed form)"),
    ]  # fmt: skip


def text(answer: DesignAnswer, width: int) -> Iterable[str]:
    """Return the front of fabrics."""
    return design_lines(answer)
