"""A schedule as text: its rounds as a table, one column a rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rich.table import Table

from syncline.describe import units
from syncline.describe.units import counted
from syncline.questions.schedule import FamilyList, ProofAnswer, ScheduleCost, ShownSchedule, WrittenSchedule
from syncline.report.table import columns
from syncline.schedule import MoveOp, Moves, Schedule, Strand, counted_cost
from syncline.schedule.cost import Cost
from syncline.schedule.family.weighted import BandwidthBound

MAX_STRANDS = 4
MAX_ROUNDS = 40
MAX_COLUMNS = 16
MAX_CELLS = 3
MAX_MOVES = 1 << 20


def summary_lines(schedule: Schedule) -> list[str]:
    """Return what a schedule is and what it costs, counted from its moves."""
    counted = counted_cost(schedule)
    lines = [
        f"{schedule.name}: {schedule.collective}",
        _row("rounds", f"{counted.rounds:,}"),
        _row("moves", f"{schedule.num_moves:,} of single chunks"),
        _row("sent", f"{counted.sent_max} of the buffer by the rank that sends most"),
        _row("in all", f"{counted.sent_total} buffers"),
    ]
    if schedule.num_helpers:
        lines.append(_row("helpers", f"{schedule.num_helpers} (vertices {schedule.num_ranks} and up)"))
    return lines


def strand_line(number: int, strand: Strand) -> str:
    """Return one line about a strand."""
    rail = f", rail {strand.rail}" if strand.rail is not None else ""
    stages = ", then ".join(f"{stage.kernel.name} in {counted(stage.num_groups, 'group')}" for stage in strand.stages)
    chunks = counted(strand.num_chunks, "chunk")
    if strand.pieces > 1:
        chunks += f" of {strand.pieces:,} pieces, one round apart"
    what = f"channel {strand.channel}{rail}, {strand.share} of the buffer, {chunks}"
    return f"strand {number} ({what}): {stages}"


def rounds_tables(schedule: Schedule, strand: Strand, width: int) -> list[Table]:
    """Return the rounds of a strand: what each rank sends. "+5>1" adds chunk 5 to rank 1's, "=5>1" copies it there.

    Up to 16 vertices are all shown, in several tables where one would be wider than `width`; of more, the first.
    """
    shown = min(schedule.num_vertices, MAX_COLUMNS)
    rounds = _rounds(strand, shown)
    headings = [str(vertex) if vertex < schedule.num_ranks else f"h{vertex}" for vertex in range(shown)]
    widths = [max(len(text) for text in (heading, *(cells[k] for _, cells in rounds if cells)))
              for k, heading in enumerate(headings)]  # fmt: skip
    left_out = schedule.num_vertices - shown
    blocks = _blocks(widths, width - len("round") - (len("  ... 1,048,576 more") if left_out else 0))
    if left_out:
        left_out = schedule.num_vertices - blocks[0].stop
        blocks = blocks[:1]
    return [_table(headings, rounds, block, left_out, strand.num_rounds) for block in blocks]


def _rounds(strand: Strand, shown: int) -> list[tuple[int, list[str]]]:
    """Return the rounds to print, each with its cells; one without cells stands for those left out."""
    last, found = strand.num_rounds - 1, []
    for number, moves in enumerate(strand.steps() if strand.num_moves <= MAX_MOVES else ()):
        if number < MAX_ROUNDS - 2 or number >= last - 1:
            found.append((number, _cells(moves, shown)))
        elif number == MAX_ROUNDS - 2:
            found.append((number, []))
    return found


def _blocks(widths: list[int], room: int) -> list[range]:
    """Cut columns of these widths, two spaces apart, into runs that fit; each has one at least."""
    blocks, first, used = [], 0, 0
    for k, width in enumerate(widths):
        if k > first and used + 2 + width > room:
            blocks.append(range(first, k))
            first, used = k, 0
        used += 2 + width
    return [*blocks, range(first, len(widths))]


def _table(
    headings: list[str], rounds: list[tuple[int, list[str]]], block: range, left_out: int, num_rounds: int
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("round", justify="right", no_wrap=True)
    for k in block:
        table.add_column(headings[k], justify="left", no_wrap=True)
    if left_out:
        table.add_column(f"... {left_out:,} more", no_wrap=True)
    for number, cells in rounds:
        if cells:
            table.add_row(str(number), *(cells[k] for k in block))
        else:
            table.add_row("...", f"{num_rounds - MAX_ROUNDS:,} more")
    return table


def _cells(moves: Moves, shown: int) -> list[str]:
    sent: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for src, dst, chunk, op in zip(moves.src.tolist(), moves.dst.tolist(), moves.chunk.tolist(), moves.op.tolist(),
                                   strict=True):  # fmt: skip
        if src < shown:
            sent[src][dst, op].append(chunk)
    return [_cell(sent[vertex]) if vertex in sent else "." for vertex in range(shown)]


def _cell(sent: dict[tuple[int, int], list[int]]) -> str:
    texts = [f"{'+' if op == MoveOp.REDUCE else '='}{_span(chunks)}>{dst}" for (dst, op), chunks in sent.items()]
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
    lines = [f"{name} on {fabric}, {units.show_given_size(cost.size_bytes)}"]
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


def bound_lines(bound: BandwidthBound | None) -> list[str]:
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


def text(
    answer: FamilyList | ShownSchedule | ProofAnswer | ScheduleCost | WrittenSchedule, width: int
) -> Iterator[str | Table]:
    """Yield a schedule, its proof or its cost."""
    match answer:
        case FamilyList():
            rows = [(one.name, one.summary, ", ".join(one.collectives)) for one in answer.families]
            yield columns(rows, ("family", "what it is", "collectives"))
        case ShownSchedule():
            schedule = answer.schedule
            yield from summary_lines(schedule)
            for number, strand in enumerate(schedule.strands[:MAX_STRANDS]):
                yield ""
                yield strand_line(number, strand)
                for part, table in enumerate(rounds_tables(schedule, strand, width)):
                    if part:
                        yield ""
                    yield table
            yield ""
            yield "+5>1: chunk 5 is added to rank 1's; =5>1: it is copied there"
            if len(schedule.strands) > MAX_STRANDS:
                yield ""
                yield f"{len(schedule.strands) - MAX_STRANDS} more strands"
        case ProofAnswer():
            yield f"proved: {answer.schedule} does {answer.collective}"
            yield f"  {counted(answer.rounds, 'round')}, {counted(answer.moves, 'move')}"
            yield f"  by {answer.method}"
        case ScheduleCost():
            name = f"{answer.schedule} ({answer.collective}, {answer.placement})"
            yield from cost_lines(name, answer.cluster, answer.cost)
            yield from bound_lines(answer.bound)
        case WrittenSchedule():
            yield f"proved {answer.name} and wrote {answer.written}"
