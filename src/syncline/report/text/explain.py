"""A traced step explained in words: one screen first, then what the trace lacks."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from syncline.describe import units
from syncline.explaining.against import TraceDifference
from syncline.explaining.explain import Explanation
from syncline.explaining.groups import CollectiveGroup
from syncline.explaining.on_cluster import OnCluster
from syncline.questions.explain import DifferenceAnswer, ExplainAnswer
from syncline.report.table import table
from syncline.report.text.account import account_lines, cause_lines, signed
from syncline.report.text.step import executed_lines, packet_lines

MOST = 8


def text(answer: ExplainAnswer | DifferenceAnswer, width: int) -> Iterator[str | Table]:
    """Return an explanation, or a difference."""
    return _explained(answer.result) if isinstance(answer, ExplainAnswer) else difference_lines(answer.result)


def _explained(found: Explanation) -> Iterator[str | Table]:
    step, worst = found.account, found.worst
    yield head(found)
    yield ""
    worse = f"; the worst, {worst.name}, {units.show_time(worst.step_s)}" if found.steps > 1 else ""
    yield f"  {step.name}{' (median)' if found.steps > 1 else ''}: {units.show_time(step.step_s)}{worse}"
    yield ""
    yield from account_lines(step, "    ")
    yield from _worse(found)
    yield from _ranks(found)
    yield from _collectives(found.collectives)
    yield from _on_cluster(found.on_cluster)
    yield from _predicted(found)
    yield from _listed("  overlap lost in a step", [
        f"{units.show_time(one.seconds):>10}  {one.reason}: {one.advice}" for one in found.lost_overlap])  # fmt: skip
    yield from _listed("  the device idles in a step while the host is in", [
        f"{units.show_time(one.seconds):>10}  {', '.join(filter(None, (one.what, one.where)))} ({one.times} in all)"
        for one in found.stalls[:MOST]])  # fmt: skip
    yield from _listed("  what would change it (the step replayed, without the time that recording took)", [
        f"{units.show_time(one.step_s):>10} {-one.share:+7.1%}  {one.change}; {one.caveat}"
        for one in found.changes[:MOST]])  # fmt: skip
    yield from _listed("  the trace does not have", list(found.lacks))


def head(found: Explanation) -> str:
    """Return what was read."""
    ranks = f"{found.ranks} rank{'s' if found.ranks != 1 else ''}"
    of = f" of {found.world}" if found.world > found.ranks else ""
    steps = f"{found.steps} step{'s' if found.steps != 1 else ''}"
    shown = f"; rank {found.shown_rank} is shown" if found.ranks > 1 else ""
    return f"{found.tool}: {ranks}{of}, {found.device or 'unnamed device'}, {steps}{shown}"


def _worse(found: Explanation) -> Iterator[str]:
    """Yield what the worst step spends longer than the median one."""
    gap = found.worst.step_s - found.account.step_s
    if found.steps < 2 or gap < 0.05 * found.account.step_s:
        return
    before = {(line.cause, line.what): line.seconds for line in found.account.lines}
    rows = [(line.seconds - before.get((line.cause, line.what), 0.0), line) for line in found.worst.lines]
    rows = [(seconds, line) for seconds, line in rows if seconds > 0.2 * gap]
    told = ", ".join(
        f"{line.what} {units.show_time(seconds)}" for seconds, line in sorted(rows, key=lambda r: -r[0])[:3]
    )
    yield f"    worst, {found.worst.name}: {units.show_time(gap)} longer by {told or 'many small things'}"


def _ranks(found: Explanation) -> Iterator[str]:
    if found.ranks < 2:
        return
    yield ""
    for one in found.late[:4]:
        longer = f"; {one.longer} takes it {units.show_time(one.longer_s)} longer" if one.longer_s > 0 else ""
        wait = f"others wait {units.show_time(one.waited_s)} a step ({one.share:.1%})"
        yield f"  rank {one.rank} comes late: {wait}{longer}"
    if not found.late:
        yield "  no rank comes late to collectives by more than 1 % of the step"
    slow = max(found.by_rank, key=lambda one: one.median_s)
    fast = min(found.by_rank, key=lambda one: one.median_s)
    yield (
        f"  median step by rank: {units.show_time(fast.median_s)} (rank {fast.rank}) to "
        f"{units.show_time(slow.median_s)} (rank {slow.rank})"
    )


def _collectives(rows: tuple[CollectiveGroup, ...]) -> Iterator[str | Table]:
    if not rows:
        return
    yield ""
    yield "  collectives in a step, those that nothing hides first"
    columns = {
        "  collective": lambda one: f"  {one.operation}{f' {one.group}' if one.group else ''}",
        "ranks": lambda one: str(one.ranks or "?"),
        "calls": lambda one: f"{one.calls:.4g}",
        "bytes": lambda one: units.show_size(one.size_bytes) if one.size_bytes else "?",
        "seen": lambda one: one.algorithm or "-",
        "takes": lambda one: units.show_time(one.total_s),
        "exposed": lambda one: units.show_time(one.exposed_s),
        "busbw": lambda one: units.show_bandwidth(one.busbw_Bps) if one.busbw_Bps else "-",
    }
    if any(one.expected_s is not None for one in rows):
        columns |= {
            "should": lambda one: units.show_bandwidth(one.expected_busbw_Bps) if one.expected_busbw_Bps else "-",
            "slow": lambda one: units.show_time(one.slow_s) if one.slow_s else "-",
        }
    if any(one.late_s is not None for one in rows):
        columns["late"] = lambda one: _late(one)
    yield table(rows[:MOST], columns, words=("  collective",))
    if len(rows) > MOST:
        yield f"  and {len(rows) - MOST} more, {units.show_time(sum(one.exposed_s for one in rows[MOST:]))} exposed"


def _on_cluster(found: OnCluster | None) -> Iterator[str]:
    """Yield the whole trace on a cluster: compute as measured, communication as the cluster gives it."""
    if found is None:
        return
    before, after = found.recorded_s, found.step_time_s
    change = f" ({after / before - 1:+.1%})" if before else ""
    yield ""
    took = f"{units.show_time(after)} instead of {units.show_time(before)}{change}"
    yield f"  on {found.cluster} the whole trace takes {took}"
    yield from executed_lines(found.collectives)[2:]
    yield from packet_lines(found.packets)
    if found.kept_as_recorded:
        yield f"    {found.kept_as_recorded:,} transfers whose size the trace does not tell keep their recorded time"


def _predicted(found: Explanation) -> Iterator[str]:
    """Yield the predicted step beside the measured one, and how far off each kind of work is."""
    if found.predicted is None or found.multipliers is None:
        return
    yield ""
    yield from cause_lines(found.predicted, "predicted", "measured")
    factors = ", ".join(f"{name} x{value:.2f}" for name, value in found.multipliers.items())
    yield f"  as measured, beside the model as it ships: {factors}"


def _late(one: CollectiveGroup) -> str:
    who = f" (rank {', '.join(map(str, one.waited_for))})" if one.waited_for and one.late_s else ""
    return f"{units.show_time(one.late_s)}{who}" if one.late_s else "-"


def _listed(heading: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield ""
        yield heading
        yield from (f"    {row}" for row in rows)


def difference_lines(found: TraceDifference) -> Iterator[str | Table]:
    """Yield why, two accounts side by side, then the kernels and collectives that changed."""
    yield found.why
    yield ""
    account, time = found.account, units.show_time
    yield from cause_lines(account, "before", "after")
    least = 0.002 * account.before.step_s
    rows = [row for row in account.lines if max(row.before_s, row.after_s) > least][: 2 * MOST]
    yield from _listed("  by line", [
        f"{f'{row.cause}: {row.what}':50.50} {time(row.before_s):>10} {time(row.after_s):>10} "
        f"{signed(row.change_s):>11}"
        for row in rows])  # fmt: skip
    yield from _listed("  kernels that changed", [
        f"{signed(row.change_s):>11}  {row.before_calls:.4g} -> {row.after_calls:.4g} calls  {row.name[:80]}"
        for row in found.kernels if abs(row.change_s) > least])  # fmt: skip
    yield from _listed("  collectives (exposed)", [
        f"{signed(row.after_exposed_s - row.before_exposed_s):>11}  {row.name}: {time(row.before_s)} -> "
        f"{time(row.after_s)} in all, {row.before_ranks} -> {row.after_ranks} ranks"
        for row in found.collectives])  # fmt: skip
