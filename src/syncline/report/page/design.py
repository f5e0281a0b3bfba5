"""A design as one page: the front as a picture, and the text beside it."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from syncline.questions.design import SHOWN, DesignAnswer
from syncline.report.page.shell import document
from syncline.report.text.design import HEADS, answer_lines, front_row, reason_lines
from syncline.version import __version__

_W, _H, _L, _T, _B = 860, 420, 90, 30, 60


def design_page(answer: DesignAnswer) -> str:
    """Return the page."""
    style = (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
    title = f"A fabric for {', '.join(job.model.name for job, _ in answer.jobs)}"
    lead, *_, counts = answer_lines(answer)
    rows = "".join(_row(front_row(point), first=point is answer.best) for point in answer.front[:SHOWN])
    heads = "".join(f"<th{_left(head)}>{escape(head)}</th>" for head in HEADS)
    body = (
        f'<header><h1>{escape(title)}</h1></header><p class="lead">{escape(lead)}</p>{front_svg(answer)}'
        f"<p class='note'>{escape(counts.strip())}</p><table><thead><tr>{heads}</tr></thead>{rows}</table>"
        f'<pre tabindex="0">{escape(chr(10).join(reason_lines(answer)))}</pre><footer>syncline {__version__}</footer>'
    )
    return document(title, style, body)


def _row(cells: list[str], first: bool) -> str:
    inner = "".join(f"<td{_left(head)}>{escape(cell)}</td>" for head, cell in zip(HEADS, cells, strict=True))
    return f'<tr class="{"first" if first else ""}">{inner}</tr>'


def _left(head: str) -> str:
    return ' class="t"' if head == "fabric" else ""


def front_svg(answer: DesignAnswer) -> str:
    """Return time a token against cost a year; a dot's size is what remains after a failed switch."""
    points = answer.front
    xs, ys = [p.usd_per_year / 1e6 for p in points], [p.s_per_token * 1e6 for p in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    dx, dy = (x1 - x0) or x1 * 0.01, (y1 - y0) or y1 * 0.01
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" width="{_W}" height="{_H}" role="img" '
        'aria-label="time a token against cost a year" font-family="Helvetica,Arial,DejaVu Sans,sans-serif">',
        f'<rect width="{_W}" height="{_H}" fill="#fff"/>',
        f'<path d="M{_L},{_T}V{_H - _B}H{_W - 20}" fill="none" stroke="#566170"/>',
        f'<text x="{(_L + _W) / 2}" y="{_H - 14}" font-size="12" text-anchor="middle">cost of owning, $M a year</text>',
        f'<text x="16" y="{_H / 2}" font-size="12" text-anchor="middle" transform="rotate(-90 16 {_H / 2})">'
        "us a token</text>",
    ]
    for share in (0, 0.5, 1):
        x, y = _L + 20 + share * (_W - _L - 60), _H - _B - 20 - share * (_H - _T - _B - 40)
        below = f'x="{x}" y="{_H - _B + 18}" font-size="11" text-anchor="middle"'
        beside = f'x="{_L - 8}" y="{y + 4}" font-size="11" text-anchor="end"'
        parts.append(f"<text {below}>{x0 + share * dx:.4g}</text><text {beside}>{y0 + share * dy:.4g}</text>")
    for number, point in enumerate(points):
        x = _L + 20 + (point.usd_per_year / 1e6 - x0) / dx * (_W - _L - 60)
        y = _H - _B - 20 - (point.s_per_token * 1e6 - y0) / dy * (_H - _T - _B - 40)
        fill = "#aa4499" if number == 0 else "#3b6fb0"
        told = f"{escape(point.choice.label)}: keeps {point.after_one:.0%}"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 5 * point.after_one:.1f}" fill="{fill}" '
                     f'fill-opacity="0.6"><title>{told}</title></circle>')  # fmt: skip
    parts.append(f'<text x="{_W - 24}" y="22" font-size="11" text-anchor="end">purple: cheapest token; '
                 "larger dot: more remains after a failed switch</text>")  # fmt: skip
    return "".join(parts) + "</svg>"
