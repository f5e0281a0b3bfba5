"""A previewed script as text: how long a step takes, what waits, what fills the memory, what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncline.describe import units
from syncline.previewing.beside import BesideStep
from syncline.previewing.exposed import CollectiveUse
from syncline.previewing.holders import Holder, PeakMemory
from syncline.previewing.suggest import HOW, RISKS, Suggestion
from syncline.previewing.what_if import Alternative
from syncline.questions.preview import MeasuredKernels, PreviewAnswer, PreviewedModel, PreviewReport
from syncline.report.text.account import account_lines

MOST_ROWS = 12


def preview_lines(data: PreviewReport) -> list[str]:
    """Return a preview for people."""
    low, high = (units.show_time(each) for each in data.interval_s)
    wider = data.interval.unmeasured
    memory, ranks = data.memory, "rank" if data.ranks == 1 else "ranks"
    return [
        f"{data.script}: {_model(data.model)} on {data.ranks:,} {ranks} of {data.cluster}",
        "",
        f"  step        {units.show_time(data.step_time_s)}  ({low} to {high}; {data.operations:,} kernels, "
        f"{data.flops_per_rank / 1e12:,.1f} TFLOP a rank)",
        *_basis(data.interval.basis),
        *(f"              wide because {each}" for each in wider),
        f"  memory      {_held(memory)} allocated at the peak{_at(memory)}{_fits(memory)}",
        "",
        "  where the time goes",
        *account_lines(data.account, "    "),
        *_collectives(data.collectives),
        *_memory(memory),
        *_kernels(data.kernels_s, data.measured, data.operations),
        *_what_if(data.what_if, data.step_time_s),
        *_suggested(data.suggested),
        *_beside(data.beside_step),
        *_said(data),
    ]


def _basis(basis: str) -> list[str]:
    """Return what the range rests on, without why it is wider than that."""
    return [f"              by {basis.partition('; wider because ')[0]}"]


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f}"


def _model(model: PreviewedModel | None) -> str:
    if model is None:
        return "a model"
    count = model.parameters
    shown = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
    return f"{model.name} of {shown} parameters"


def _at(memory: PeakMemory) -> str:
    place = memory.at_line or memory.at_module
    return f", in the {memory.at_phase or 'step'}" + (f" at {place}" if place else "")


def _held(memory: PeakMemory) -> str:
    whole = memory.capacity_bytes
    return f"{_gib(memory.peak_bytes)} of {_gib(whole)} GiB" if whole else f"{_gib(memory.peak_bytes)} GiB"


def _fits(memory: PeakMemory) -> str:
    spare = _gib(memory.context_bytes)
    if not memory.capacity_bytes:
        return ""  # of a host's memory the description says nothing
    if memory.fits:
        return f"; fits beside {spare} GiB for the driver and libraries"
    return f"; OUT OF MEMORY at {memory.over_line} ({spare} GiB are the driver's and libraries')"


def _collectives(rows: Sequence[CollectiveUse]) -> list[str]:
    if not rows:
        return ["", "  no communication"]
    head = ("phase", "ranks", "calls", "sent a rank", "takes", "exposed")
    return ["", _row("communication", head, "most in, limited by"), *(_collective(row) for row in rows[:MOST_ROWS])]


def _collective(row: CollectiveUse) -> str:
    cells = (
        row.phase, f"{row.ranks:,}", f"{row.calls:,}", units.show_size(row.sent_bytes),
        units.show_time(row.total_s), units.show_time(row.exposed_s),
    )  # fmt: skip
    return _row(row.name, cells, ", ".join(filter(None, (row.module, row.limiting_link))))


def _row(name: str, cells: Sequence[str], rest: str) -> str:
    phase, ranks, calls, sent, takes, exposed = cells
    return f"  {name:16} {phase:9} {ranks:>6} {calls:>6} {sent:>12} {takes:>10} {exposed:>10}  {rest}"


def _memory(memory: PeakMemory) -> list[str]:
    return ["", "  what holds the memory at the peak", *map(_holder, memory.holders)]


def _holder(row: Holder) -> str:
    place = row.line or row.module
    most = f", most from {place}" if place else ""
    return f"    {row.label:28} {_gib(row.size_bytes):>8} GiB  {row.count:>6,} tensors{most}"


def _kernels(parts: Mapping[str, float], measured: MeasuredKernels, operations: int) -> list[str]:
    shown = ", ".join(
        f"{name} {units.show_time(seconds)}" for name, seconds in sorted(parts.items(), key=lambda each: -each[1])
    )
    if not measured.device:
        return ["", f"  kernels (by the step model): {shown}"]
    how = ", scaled to this cluster's GPU by the step model" if measured.scaled else ""
    failed = [f"  not timed: {name} ({why})" for name, why in measured.not_timed.items()]
    timed = f"{measured.kernels:,} of {operations:,} timed on {measured.device} with torch {measured.torch}{how}"
    host = [f"  host: {units.show_time(measured.host_s)} a step, of the script itself on that machine"]
    return ["", f"  kernels ({timed}): {shown}", *(host if measured.host_s else []), *failed]


def _what_if(rows: Sequence[Alternative], now: float) -> list[str]:
    if not rows:
        return []
    return ["", f"  {'what if':28} {'step':>10} {'':>8} {'exposed':>10}", *(_alternative(row, now) for row in rows)]


def _suggested(rows: Sequence[Suggestion]) -> list[str]:
    if not rows:
        return []
    head = f"  {'suggested, best first':42} {'step':>10} {'':>8} {'memory':>10}"
    return ["", head, *map(_suggestion, rows[:MOST_ROWS]), *_hints(rows)]


def _suggestion(row: Suggestion) -> str:
    rest = ("  as fast as the one above" if row.ties else "") + ("" if row.fits else "  DOES NOT FIT")
    step, held = units.show_time(row.step_time_s), f"{_gib(row.memory_bytes)} GiB"
    return f"    {row.change:40} {step:>10} {-row.saves:>+8.1%} {held:>10}{rest}"


def _hints(rows: Sequence[Suggestion]) -> list[str]:
    """Return how each change is made, and what it risks, once."""
    kinds = dict.fromkeys(change.partition("=")[0] for row in rows[:MOST_ROWS] for change in row.change.split(","))
    return [f"      {kind}: {HOW[kind]}; {RISKS[kind]}" for kind in kinds]


def _alternative(row: Alternative, now: float) -> str:
    step, change = row.step_time_s, row.step_time_s / now - 1
    return f"    {row.change:26} {units.show_time(step):>10} {change:>+8.1%} {units.show_time(row.exposed_s):>10}"


def _beside(priced: BesideStep | None) -> list[str]:
    """Return what `step` says of the job file, and why it differs."""
    if priced is None:
        return []
    times = {"step": priced.step_time_s, **priced.time_s}
    sizes = {"memory": priced.memory_bytes, **priced.held_bytes}
    rows = {name: [units.show_time(each) for each in pair] for name, pair in times.items()}
    rows |= {name: [f"{_gib(each)} GiB" for each in pair] for name, pair in sizes.items()}
    lines = [f"    {name:26} {seen:>10} {stated:>10}" for name, (seen, stated) in rows.items()]
    head = f"  {'beside `step` of the job':28} {'preview':>10} {'step':>10}"
    return ["", head, *lines, *(f"    {each}" for each in priced.why)]


def _said(data: PreviewReport) -> list[str]:
    """Return what was assumed: stand-ins, guesses, ranks that stand for others."""
    captured = ", ".join(map(str, data.captured_ranks[:8])) + (", ..." if len(data.captured_ranks) > 8 else "")
    ran = f"  ran rank {captured} of {data.ranks:,} with torch {data.torch}"
    lines = ["", f"{ran}, {data.steps} steps after the warm-up"]
    if data.checked_ranks:
        found = "; ".join(data.differences) or "the same"
        lines.append(f"  compared with rank {', '.join(map(str, data.checked_ranks))}: {found}")
    lines += [
        f"  stand-in: {row.what} at {row.line or '?'} gave {row.value}, {row.times} times"
        for row in data.stand_ins[:MOST_ROWS]
    ]
    lines += [
        f"  not priced: {row.name}, {row.calls} calls; {units.show_time(row.guessed_s)} guessed by bytes"
        for row in data.unpriced
    ]
    lines += [f"  note: {text}" for text in data.notes]
    return [*lines, f"  ignores: {', '.join(data.ignores)}"]


def text(answer: PreviewAnswer, width: int) -> Iterable[str]:
    """Return the step of a script."""
    return preview_lines(answer.report)
