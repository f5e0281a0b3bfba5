"""A schedule as a picture: ranks across, rounds downwards, an arrow for every transfer."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from markupsafe import Markup

from syncline.errors import ScheduleError
from syncline.report.chart.svg import Svg, element
from syncline.report.picture.palette import FONT
from syncline.schedule import MoveOp, Moves, Schedule, Strand

MAX_ARROWS = 6000
MAX_LABELS = 400
COLUMN, ROW, LEFT, TOP = 64, 46, 74, 92
SHAPES = f"""
.schedule text{{font-family:{FONT}}} .schedule .title{{font-size:18px;font-weight:600}} .schedule .sub{{font-size:12px}}
.schedule .rank{{font-size:12px;font-weight:600;text-anchor:middle}}
.schedule .round{{font-size:11px;text-anchor:end}}
.schedule .chunk{{font-size:9px;text-anchor:middle;paint-order:stroke;stroke-width:3px}}
.schedule .add,.schedule .copy{{fill:none;stroke-width:1.4}}
"""
# Plain colours, because rasterisers know no CSS variables.
COLOURS = """
.schedule text{{fill:{ink}}} .schedule .paper{{fill:{paper}}} .schedule .band{{fill:{band}}}
.schedule .life{{stroke:{line}}} .schedule .sub,.schedule .round{{fill:{soft}}} .schedule .chunk{{stroke:{paper}}}
.schedule .add{{stroke:{add}}} .schedule .copy{{stroke:{copy}}} .schedule .dot-add{{fill:{add}}}
.schedule .dot-copy{{fill:{copy}}}
"""
LIGHT = COLOURS.format(paper="#ffffff", ink="#1c2430", soft="#566170", line="#dfe4ea", band="#f6f8fa", add="#c25e00",
                       copy="#2b6cb0")  # fmt: skip
DARK = COLOURS.format(paper="#12161c", ink="#e8ecf2", soft="#9aa7b6", line="#2c3541", band="#181e26", add="#f0a04b",
                      copy="#74a7e8")  # fmt: skip
STYLE = Markup(f"{SHAPES}{LIGHT}@media (prefers-color-scheme:dark){{{DARK}}}")  # noqa: S704 constants


class _Transfer(NamedTuple):
    """What one rank sends another in a round."""

    src: int
    dst: int
    look: str
    chunks: list[int]

    @property
    def words(self) -> str:
        """The chunks: "3", "0-3", "5 chunks"."""
        first, last = min(self.chunks), max(self.chunks)
        if first == last:
            return str(first)
        return f"{first}-{last}" if last - first == len(self.chunks) - 1 else f"{len(self.chunks)} chunks"


def draw_svg(schedule: Schedule, strand: int = 0) -> Markup:
    """Return the space-time picture of one strand as a self-contained SVG."""
    part, ranks = schedule.strands[strand], schedule.num_vertices
    hint = "Draw the same family with fewer ranks."
    if part.num_moves > 1 << 20 or part.num_rounds * ranks > 1 << 16:
        raise ScheduleError(
            f"{schedule.name}: {part.num_rounds:,} rounds of {ranks:,} vertices are too many to draw.", hint=hint
        )
    rounds = [_transfers(moves) for moves in part.steps()]
    arrows = sum(len(transfers) for transfers in rounds)
    if arrows > MAX_ARROWS:
        raise ScheduleError(
            f"{schedule.name}: {arrows:,} arrows are too many to draw (at most {MAX_ARROWS:,}).", hint=hint
        )
    width = max(LEFT + COLUMN * ranks + 24, 560)
    height = TOP + ROW * max(1, len(rounds)) + 56
    svg = Svg(width, height, schedule.name, is_fixed=True, class_="schedule")
    svg.add("style", STYLE)
    svg.add("defs", _marker("add"), _marker("copy"))
    svg.add("rect", class_="paper", width="100%", height="100%")
    svg.text(20, 34, schedule.name, class_="title")
    svg.text(20, 54, _subtitle(schedule, part, strand), class_="sub")
    _grid(svg, schedule, part)
    # More labels would hide each other; pointing at an arrow still tells its chunks.
    labelled = [arrows <= MAX_LABELS and len(transfers) <= 1.5 * ranks for transfers in rounds]
    _legend(svg, "numbers are chunks" if all(labelled) else "numbers are chunks, left out in crowded rounds")
    for number, (transfers, has_labels) in enumerate(zip(rounds, labelled, strict=True)):
        for transfer in transfers:
            _arrow(svg, number, transfer)
        for transfer in transfers if has_labels else ():
            _label(svg, number, transfer)
    return svg.document()


def draw_each(schedule: Schedule) -> list[Markup]:
    """Return the picture of every strand, alike ones once; each stands in a frame that scrolls."""
    different: dict[tuple[int, ...], int] = {}
    for number, strand in enumerate(schedule.strands):
        different.setdefault(tuple(id(stage.kernel) for stage in strand.stages), number)
    return [element("div", draw_svg(schedule, number), class_="picture") for number in different.values()]


def _transfers(moves: Moves) -> list[_Transfer]:
    pairs: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    columns = (moves.src.tolist(), moves.dst.tolist(), moves.op.tolist(), moves.chunk.tolist())
    for src, dst, op, chunk in zip(*columns, strict=True):
        pairs[src, dst, op].append(chunk)
    looks = {MoveOp.REDUCE: "add"}
    return [_Transfer(src, dst, looks.get(MoveOp(op), "copy"), chunks) for (src, dst, op), chunks in pairs.items()]


def _subtitle(schedule: Schedule, part: Strand, strand: int) -> str:
    words = f"{schedule.collective}; {part.num_rounds} rounds, {part.num_chunks * part.pieces} chunks"
    if len(schedule.strands) > 1:
        words += f"; strand {strand} of {len(schedule.strands)}: {part.share} of the buffer, channel {part.channel}"
    return words


def _grid(svg: Svg, schedule: Schedule, part: Strand) -> None:
    for number in range(part.num_rounds):
        y = TOP + ROW * number
        if number % 2 == 0:
            svg.add(
                "rect", class_="band", x=LEFT - 14, y=y, width=COLUMN * schedule.num_vertices + 4, height=ROW
            )  # fmt: skip
        svg.text(LEFT - 24, y + ROW / 2 + 4, str(number), class_="round")
    for vertex in range(schedule.num_vertices):
        svg.line(_x(vertex), TOP, _x(vertex), TOP + ROW * max(1, part.num_rounds), class_="life")
        svg.text(_x(vertex), TOP - 12, str(vertex) if vertex < schedule.num_ranks else f"h{vertex}", class_="rank")


def _legend(svg: Svg, numbers: str) -> None:
    y = svg.height - 22
    for x, look, words in ((20, "add", "added to what is there"), (216, "copy", f"copied; {numbers}; rounds go down")):
        svg.line(x, y - 4, x + 28, y - 4, class_=look, marker_end=f"url(#{look})")
        svg.text(x + 36, y, words, class_="sub")


def _marker(look: str) -> Markup:
    head = element("path", class_=f"dot-{look}", d="M0,0.5 L8,4 L0,7.5 z")
    return element("marker", head, id=look, viewBox="0 0 8 8", refX=7, refY=4, markerWidth=6, markerHeight=6,
                   orient="auto-start-reverse")  # fmt: skip


def _x(vertex: int) -> float:
    return LEFT + COLUMN * (vertex + 0.5) - 12


def _arrow(svg: Svg, number: int, transfer: _Transfer) -> None:
    y, look = TOP + ROW * number, transfer.look
    title = f"round {number}: {transfer.src} to {transfer.dst}, {look} {transfer.words}"
    svg.add("line", title=title, class_=look, x1=_x(transfer.src), y1=y + 5, x2=_x(transfer.dst), y2=y + ROW - 5,
            marker_end=f"url(#{look})")  # fmt: skip


def _label(svg: Svg, number: int, transfer: _Transfer) -> None:
    x1, x2 = _x(transfer.src), _x(transfer.dst)
    at = 0.28 * COLUMN / abs(x2 - x1)  # near where it starts, so that two that cross keep their labels apart
    svg.text(x1 + (x2 - x1) * at, TOP + ROW * number + 8 + (ROW - 10) * at, transfer.words, class_="chunk")
