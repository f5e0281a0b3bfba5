"""A schedule as text: its rounds as a table, one column a rank."""

from __future__ import annotations

from collections import defaultdict

from rich.table import Table

from syncline import units
from syncline.schedule import CostLaw, Moves, Op, Schedule, Strand, counted_law
from syncline.schedule.cost import Cost
from syncline.schedule.weighted import Bound

MAX_ROUNDS = 40
MAX_COLUMNS = 16
MAX_CELLS = 3
MAX_MOVES = 1 << 20


def summary_lines(schedule: Schedule, law: CostLaw | None) -> list[str]:
    """Return what a schedule is and what it costs, counted, with its family's law beside it."""
    counted = counted_law(schedule)
    lines = [f"{schedule.name}: {schedule.collective}"]
    lines.append(_row("rounds", f"{counted.rounds:,}" + (f" (law: {law.rounds:,})" if law else "")))
    lines.append(_row("moves", f"{schedule.num_moves:,} of single chunks"))
    stated = f" (law: {'at most ' if law.at_most else ''}{law.sent_max})" if law else ""
    lines.append(_row("sent", f"{counted.sent_max} of the buffer by the rank that sends most{stated}"))
    lines.append(_row("in all", f"{counted.sent_total} buffers" + (f" (law: {law.sent_total})" if law else "")))
    if schedule.num_helpers:
        lines.append(_row("helpers", f"{schedule.num_helpers} (vertices {schedule.num_ranks} and up)"))
    return lines


def strand_line(number: int, strand: Strand) -> str:
    """Return one line about a strand."""
    rail = f", rail {strand.rail}" if strand.rail is not None else ""
    stages = ", then ".join(f"{stage.kernel.name} in {_groups(stage.num_groups)}" for stage in strand.stages)
    chunks = "1 chunk" if strand.num_chunks == 1 else f"{strand.num_chunks:,} chunks"
    what = f"channel {strand.channel}{rail}, {strand.share} of the buffer, {chunks}"
    return f"strand {number} ({what}): {stages}"


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count:,} groups"


def rounds_table(schedule: Schedule, strand: Strand) -> Table:
    """Return the rounds of a strand: what each rank sends. "+5>1" adds chunk 5 to rank 1's, "=5>1" copies it there."""
    shown = min(schedule.num_vertices, MAX_COLUMNS)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("round", justify="right")
    for vertex in range(shown):
        table.add_column(str(vertex) if vertex < schedule.num_ranks else f"h{vertex}", justify="left", no_wrap=True)
    if shown < schedule.num_vertices:
        table.add_column(f"... {schedule.num_vertices - shown:,} more")
    last = strand.num_rounds - 1
    for number, moves in enumerate(strand.steps() if strand.num_moves <= MAX_MOVES else ()):
        if number < MAX_ROUNDS - 2 or number >= last - 1:
            table.add_row(str(number), *_cells(moves, shown))
        elif number == MAX_ROUNDS - 2:
            table.add_row("...", f"{strand.num_rounds - MAX_ROUNDS:,} more")
    return table


def _cells(moves: Moves, shown: int) -> list[str]:
    sent: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for src, dst, chunk, op in zip(moves.src.tolist(), moves.dst.tolist(), moves.chunk.tolist(), moves.op.tolist(),
                                   strict=True):  # fmt: skip
        if src < shown:
            sent[src][dst, op].append(chunk)
    return [_cell(sent[vertex]) if vertex in sent else "." for vertex in range(shown)]


def _cell(sent: dict[tuple[int, int], list[int]]) -> str:
    texts = [f"{'+' if op == Op.REDUCE else '='}{_span(chunks)}>{dst}" for (dst, op), chunks in sent.items()]
    return " ".join(texts[:MAX_CELLS]) + (f" +{len(texts) - MAX_CELLS} more" if len(texts) > MAX_CELLS else "")


def _span(chunks: list[int]) -> str:
    ordered = sorted(chunks)
    if len(ordered) == 1:
        return str(ordered[0])
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}-{ordered[-1]}"
    return f"{ordered[0]},{ordered[1]}" + ("" if len(ordered) == 2 else f",..{len(ordered)}")


def cost_lines(name: str, fabric: str, cost: Cost) -> list[str]:
    """Return the cost of a schedule on a fabric."""
    share = cost.sent_bytes_per_rank / cost.size_bytes if cost.size_bytes else 0.0
    lines = [f"{name} on {fabric}, {units.show_size(cost.size_bytes)}"]
    lines.append(_row("rounds", f"{cost.rounds:,}"))
    sent = f"{units.show_size(cost.sent_bytes_per_rank)} by the rank that sends most, {share:.4g} of the buffer"
    lines.append(_row("sent", sent))
    inside, near, far = (units.show_size(cost.link_bytes[key]) for key in ("inside_host", "inside_rack", "across"))
    leaves = units.show_size(cost.link_bytes["inside_rack"] + cost.link_bytes["across"])
    lines.append(_row("inside host", inside))
    lines.append(_row("across hosts", f"{leaves}: {near} inside a rack, {far} across racks"))
    if cost.link_bytes["to_helpers"]:
        lines.append(_row("helpers", f"{units.show_size(cost.link_bytes['to_helpers'])} to and from them"))
    for tier, total in (cost.tier_bytes or {}).items():
        if total:
            used, every = (cost.links_used or {}).get(tier, (0, 0))
            lines.append(_row("links", f"{tier}: {units.show_size(total)} on {used:,} of {every:,} links"))
    if cost.busiest_link:
        lines.append(_row("busiest", f"{cost.busiest_link}: {units.show_size(cost.busiest_bytes)}, at least "
                                     f"{units.show_time(cost.least_time_s)} at its rate"))  # fmt: skip
    return lines


def bound_lines(bound: Bound | None) -> list[str]:
    """Return the time the rates allow beside the time no schedule can beat."""
    if bound is None:
        return []
    over = max(0.0, bound.time_s / bound.bound_s - 1) if bound.bound_s else 0.0  # rounding may dip below
    return [
        _row("links alone", f"{units.show_time(bound.time_s)} (rates only, no latency)"),
        _row("bound", f"{units.show_time(bound.bound_s)} by {bound.reason}: {over:+.2%}"),
    ]


def _row(label: str, text: str) -> str:
    return f"  {label:<12} {text}"
