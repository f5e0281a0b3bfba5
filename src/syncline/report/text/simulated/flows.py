"""Flows in words: completion times, and slowdowns by size."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from syncline.describe import units
from syncline.questions.simulated.flows import FlowRun, FlowsAnswer, Slowdowns
from syncline.report.table import columns


def text(answer: FlowsAnswer, width: int) -> Iterator[str | Table]:
    """Yield how flows fared under each transport."""
    yield (
        f"{answer.flows:,} flows ({answer.source}), {answer.size_bytes / 1e6:,.1f} MB, on {answer.cluster}; "
        f"one connection a {'flow' if answer.connections == 'own' else 'pair of hosts'}"
    )
    for run in answer.runs:
        yield from _run(run)
    yield f"slowdown: time over the same flow's alone on its path. Ignores {', '.join(answer.ignores)}"
    yield from (f"wrote {path}" for path in answer.pcap)


def _run(run: FlowRun) -> Iterator[str | Table]:
    show, done = units.show_time, run.completion
    yield (
        f"{run.transport}: {run.state} after {show(run.time_s)}; mean {show(done.mean_s)}, p99 {show(done.p99_s)}; "
        f"{run.counters['drops']:,} drops, {run.resent_packets:,} packets sent again, {run.counters['pauses']:,} pauses"
    )
    if run.missing:
        yield f"  {run.missing:,} flows have not arrived"
    if run.inside_hosts:
        yield f"  flows inside a host, which never reach the network: {run.inside_hosts:,}"
    cells = [
        (_sizes(part, part is run.slowdown[-1]), f"{part.count:,}",
         *(f"{figure:.2f}" for figure in (part.mean, part.p50, part.p95, part.p99, part.p999)))
        for part in run.slowdown
    ]  # fmt: skip
    heads = ("size", "flows", "slowdown mean", "p50", "p95", "p99", "p99.9")
    yield columns(cells, heads, right=range(1, len(heads)))


def _sizes(part: Slowdowns, last: bool) -> str:
    if last:
        return "all"
    return "larger" if part.upto_bytes is None else f"up to {_decimal(part.upto_bytes)}"


def _decimal(size: float) -> str:
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= step:
            return f"{size / step:g} {unit}"
    return f"{size:g} B"
