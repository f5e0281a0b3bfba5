"""A schedule as a picture: ranks across, rounds downwards, an arrow for every transfer."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from syncline.errors import ScheduleError
from syncline.report.page.shell import document
from syncline.schedule import MoveOp, Moves, Schedule, Strand

MAX_ARROWS = 6000
MAX_LABELS = 400
COLUMN, ROW, LEFT, TOP = 64, 46, 74, 92
FONT = '"Inter","Helvetica Neue",Arial,"Liberation Sans","DejaVu Sans",sans-serif'
LIGHT = {
    "paper": "#ffffff", "ink": "#1c2430", "soft": "#566170", "line": "#dfe4ea", "band": "#f6f8fa", "add": "#c25e00",
    "copy": "#2b6cb0",
}  # fmt: skip
DARK = {
    "paper": "#12161c", "ink": "#e8ecf2", "soft": "#9aa7b6", "line": "#2c3541", "band": "#181e26", "add": "#f0a04b",
    "copy": "#74a7e8",
}  # fmt: skip
SHAPES = f"""
.schedule text{{font-family:{FONT}}} .schedule .title{{font-size:18px;font-weight:600}} .schedule .sub{{font-size:12px}}
.schedule .rank{{font-size:12px;font-weight:600;text-anchor:middle}}
.schedule .round{{font-size:11px;text-anchor:end}}
.schedule .chunk{{font-size:9px;text-anchor:middle;paint-order:stroke;stroke-width:3px}}
.schedule .add,.schedule .copy{{fill:none;stroke-width:1.4}}
"""


def _colours(colour: dict[str, str]) -> str:
    """Return the rules of one theme; plain colours, because rasterisers know no CSS variables."""
    return (
        f".schedule text{{fill:{colour['ink']}}} .schedule .paper{{fill:{colour['paper']}}} "
        f".schedule .band{{fill:{colour['band']}}} .schedule .life{{stroke:{colour['line']}}} "
        f".schedule .sub,.schedule .round{{fill:{colour['soft']}}} .schedule .chunk{{stroke:{colour['paper']}}} "
        f".schedule .add{{stroke:{colour['add']}}} .schedule .copy{{stroke:{colour['copy']}}} "
        f".schedule .dot-add{{fill:{colour['add']}}} .schedule .dot-copy{{fill:{colour['copy']}}}"
    )


STYLE = f"{SHAPES}{_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_colours(DARK)}}}"


def draw_svg(schedule: Schedule, strand: int = 0) -> str:
    """Return the space-time picture of one strand as a self-contained SVG."""
    part = schedule.strands[strand]
    if part.num_moves > 1 << 20 or part.num_rounds * schedule.num_vertices > 1 << 16:
        raise ScheduleError(f"{schedule.name}: {part.num_rounds:,} rounds of {schedule.num_vertices:,} vertices are "
                            "too many to draw.", hint="Draw the same family with fewer ranks.")  # fmt: skip
    rounds = [_transfers(moves) for moves in part.steps()]
    arrows = sum(len(transfers) for transfers in rounds)
    if arrows > MAX_ARROWS:
        raise ScheduleError(f"{schedule.name}: {arrows:,} arrows are too many to draw (at most {MAX_ARROWS:,}).",
                            hint="Draw the same family with fewer ranks.")  # fmt: skip
    width = LEFT + COLUMN * schedule.num_vertices + 24
    height = TOP + ROW * max(1, len(rounds)) + 56
    # More labels would hide each other; pointing at an arrow still tells its chunks.
    labelled = [arrows <= MAX_LABELS and len(transfers) <= 1.5 * schedule.num_vertices for transfers in rounds]
    body = [*_head(schedule, part, strand), *_grid(schedule, part), *_legend(height, all(labelled))]
    for number, transfers in enumerate(rounds):
        body += [_arrow(number, *transfer) for transfer in transfers]
        body += [_label(number, *transfer) for transfer in transfers if labelled[number]]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="schedule" viewBox="0 0 {max(width, 560)} {height}" '
        f'width="{max(width, 560)}" height="{height}"><style>{STYLE}</style>{_markers()}'
        f'<rect class="paper" width="100%" height="100%"/>{"".join(body)}</svg>\n'
    )


def draw_html(schedule: Schedule, facts: dict[str, str]) -> str:
    """Return one page with the picture of every strand (alike ones once) and a table of facts."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())
    pictures = "".join(f"<figure>{draw_svg(schedule, number)}</figure>" for number in _different(schedule))
    style = (
        f"body{{font-family:{FONT};margin:2rem;background:#fff;color:#1c2430}}figure{{margin:1rem 0;overflow-x:auto}}"
        "th{text-align:left;padding-right:1.5rem;font-weight:600}td,th{padding:.15rem .6rem .15rem 0}"
        "@media (prefers-color-scheme:dark){body{background:#12161c;color:#e8ecf2}}"
    )
    body = f"<h1>{escape(schedule.name)}</h1><table>{rows}</table>{pictures}"
    return document(schedule.name, style, body)


def _different(schedule: Schedule) -> list[int]:
    seen: set[tuple[int, ...]] = set()
    out = []
    for number, strand in enumerate(schedule.strands):
        key = tuple(id(stage.kernel) for stage in strand.stages)
        if key not in seen:
            seen.add(key)
            out.append(number)
    return out


def _transfers(moves: Moves) -> list[tuple[int, int, int, list[int]]]:
    """Return (src, dst, op, chunks) of one round, one entry for each pair."""
    pairs: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    columns = (moves.src.tolist(), moves.dst.tolist(), moves.op.tolist(), moves.chunk.tolist())
    for src, dst, op, chunk in zip(*columns, strict=True):
        pairs[src, dst, op].append(chunk)
    return [(*key, chunks) for key, chunks in pairs.items()]


def _head(schedule: Schedule, part: Strand, strand: int) -> list[str]:
    sub = f"{schedule.collective}; {part.num_rounds} rounds, {part.num_chunks * part.pieces} chunks"
    if len(schedule.strands) > 1:
        sub += f"; strand {strand} of {len(schedule.strands)}: {part.share} of the buffer, channel {part.channel}"
    return [
        f'<text class="title" x="20" y="34">{escape(schedule.name)}</text>',
        f'<text class="sub" x="20" y="54">{escape(sub)}</text>',
    ]


def _grid(schedule: Schedule, part: Strand) -> list[str]:
    rounds = max(1, part.num_rounds)
    right = LEFT + COLUMN * schedule.num_vertices
    out = []
    for number in range(part.num_rounds):
        y = TOP + ROW * number
        if number % 2 == 0:
            out.append(f'<rect class="band" x="{LEFT - 14}" y="{y}" width="{right - LEFT + 4}" height="{ROW}"/>')
        out.append(f'<text class="round" x="{LEFT - 24}" y="{y + ROW / 2 + 4}">{number}</text>')
    for vertex in range(schedule.num_vertices):
        x, name = _x(vertex), str(vertex) if vertex < schedule.num_ranks else f"h{vertex}"
        out.append(f'<line class="life" x1="{x}" y1="{TOP}" x2="{x}" y2="{TOP + ROW * rounds}"/>')
        out.append(f'<text class="rank" x="{x}" y="{TOP - 12}">{name}</text>')
    return out


def _legend(height: int, all_labelled: bool) -> list[str]:
    y = height - 22
    numbers = "numbers are chunks" if all_labelled else "numbers are chunks, left out in crowded rounds"
    return [
        f'<line class="add" x1="20" y1="{y - 4}" x2="48" y2="{y - 4}" marker-end="url(#a)"/>'
        f'<text class="sub" x="56" y="{y}">added to what is there</text>',
        f'<line class="copy" x1="216" y1="{y - 4}" x2="244" y2="{y - 4}" marker-end="url(#c)"/>'
        f'<text class="sub" x="252" y="{y}">copied; {numbers}; rounds go down</text>',
    ]


def _markers() -> str:
    def marker(name: str, look: str) -> str:
        return (
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            f'orient="auto-start-reverse"><path class="dot-{look}" d="M0,0.5 L8,4 L0,7.5 z"/></marker>'
        )

    return f"<defs>{marker('a', 'add')}{marker('c', 'copy')}</defs>"


def _x(vertex: int) -> float:
    return LEFT + COLUMN * (vertex + 0.5) - 12


def _ends(number: int, src: int, dst: int) -> tuple[float, float, float, float]:
    y = TOP + ROW * number
    return _x(src), y + 5, _x(dst), y + ROW - 5


def _arrow(number: int, src: int, dst: int, op: int, chunks: list[int]) -> str:
    look, mark = ("add", "a") if op == MoveOp.REDUCE else ("copy", "c")
    x1, y1, x2, y2 = _ends(number, src, dst)
    title = f"round {number}: {src} to {dst}, {'add' if op == MoveOp.REDUCE else 'copy'} {_span(chunks)}"
    line = f'<line class="{look}" x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" marker-end="url(#{mark})"/>'
    return f"<g><title>{title}</title>{line}</g>"


def _label(number: int, src: int, dst: int, op: int, chunks: list[int]) -> str:
    x1, y1, x2, y2 = _ends(number, src, dst)
    at = 0.28 * COLUMN / abs(x2 - x1)  # near where it starts, so that two that cross keep their labels apart
    return f'<text class="chunk" x="{x1 + (x2 - x1) * at:.1f}" y="{y1 + (y2 - y1) * at + 3:.1f}">{_span(chunks)}</text>'


def _span(chunks: list[int]) -> str:
    ordered = sorted(chunks)
    if len(ordered) == 1:
        return str(ordered[0])
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}-{ordered[-1]}"
    return f"{len(ordered)} chunks"
