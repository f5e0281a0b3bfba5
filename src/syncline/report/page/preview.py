"""A previewed script as a self-contained page: its numbers, its memory and the last steps of every captured rank."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.describe.plain import plain
from syncline.report.page.shell import document
from syncline.report.page.step import _STYLE, timeline_svg
from syncline.report.text.preview import preview_lines

if TYPE_CHECKING:
    from syncline.questions.preview import PreviewAnswer


def preview_page(answer: PreviewAnswer) -> str:
    """Return the page of a preview."""
    data = plain(answer.to_json())
    title = f"{data['script']} on {data['cluster']}: {units.show_time(data['step_time_s'])} a step"
    timeline = answer.timeline
    body = [
        f"<h1>{escape(title)}</h1>",
        "<h2>Two steps of every captured rank</h2>",
        f'<p class="note">{escape(timeline.source.label())}. Hover a span for its module, time and bytes.</p>',
        timeline_svg(timeline),
        "<h2>All numbers</h2>",
        f'<pre tabindex="0">{escape(chr(10).join(preview_lines(data)))}</pre>',
    ]
    return document(title, _STYLE, "".join(body))
