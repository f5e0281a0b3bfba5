"""Jobs that share a cluster as a page: when each computes and sends, unsteered and steered, and what each loses."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.describe.plain import plain
from syncline.report.page.shell import document
from syncline.report.text.share import steering_words

if TYPE_CHECKING:
    from syncline.questions.share import ShareAnswer
    from syncline.share.epochs import Epoch

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1180px;padding:0 16px;color:#1b1f24;background:#fff}
h1{font-size:20px} h2{font-size:16px;margin-top:26px} svg{max-width:100%;height:auto}
.note{color:#57606a} text{font:11px system-ui,sans-serif;fill:#57606a} .lane{fill:#eaeef2}
table{border-collapse:collapse} td,th{padding:3px 12px 3px 0;text-align:right}
td:first-child,th:first-child{text-align:left}
code{font-size:12px} pre{font-size:12.5px;overflow:auto}
@media print{pre{white-space:pre-wrap;font-size:9px}}
@media (prefers-color-scheme: dark){body{color:#e6e6e6;background:#14171a}.note,text{color:#9aa;fill:#9aa}
.lane{fill:#22272e}}
"""
_HUES = ("#4c8bf5", "#e08a1e", "#15803d", "#be185d", "#7c3aed", "#0891b2", "#b7791f", "#dc2626")
SHOWN_STEPS = 5
"""Steps of the slowest job that are drawn, once settled."""


def share_page(answer: ShareAnswer, words: str) -> str:
    """Return the page; `words` is what the command prints."""
    title = f"{len(answer.shared.jobs)} jobs on {answer.fabric.name}"
    body = [f"<h1>{escape(title)}</h1>"]
    told = plain(answer.to_json())["epochs"]
    for epoch, data in zip(answer.epochs, told, strict=True):
        end = "on" if epoch.end_s is None else f"to {units.show_time(epoch.end_s)}"
        failed = f"; failed: {', '.join(epoch.failed)}" if epoch.failed else ""
        body.append(f"<h2>From {units.show_time(epoch.begin_s)} {end}{escape(failed)}</h2>")
        if epoch.stalled or epoch.steering is None:
            body.append(f"<p>Nothing moves: {escape(epoch.stalled)}</p>")
            continue
        body.append(f"<p>{escape(steering_words(data))}.</p>")
        body.append(sharing_svg(epoch))
        body.append('<p class="note">Filled: the job moves bytes. Grey: it computes or waits. Ticks: steps begin.</p>')
        body.append(_table(epoch))
    body += ["<h2>All numbers</h2>", f'<pre tabindex="0">{escape(words)}</pre>']
    return document(title, _STYLE, "".join(body))


def sharing_svg(epoch: Epoch, width: int = 860) -> str:
    """Return when each job of an epoch moves bytes, as steered."""
    assert epoch.steering is not None
    course = epoch.steering.course
    longest = max(course.step_s)
    begin = min(course.horizon_s, 3 * longest)
    end = min(course.horizon_s, begin + SHOWN_STEPS * longest)
    if end - begin < longest:
        begin = max(0.0, end - longest)
    left, lane = 130, 30
    scale = (width - left - 10) / max(end - begin, 1e-12)
    parts = []
    for number, job in enumerate(epoch.jobs):
        y = number * lane + 4
        parts.append(f'<text x="4" y="{y + 14}">{escape(job.name[:20])}</text>')
        parts.append(f'<rect class="lane" x="{left}" y="{y}" width="{width - left - 10}" height="20" rx="3"/>')
        for a, b in course.busy[number]:
            if b > begin and a < end:
                x, wide = left + (max(a, begin) - begin) * scale, (min(b, end) - max(a, begin)) * scale
                colour = _HUES[number % len(_HUES)]
                parts.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{max(wide, 0.5):.1f}" height="20" fill="{colour}">'
                    f"<title>{escape(job.name)} moves bytes for {units.show_time(b - a)}</title></rect>"
                )
        for a, _ in course.steps[number]:
            if begin <= a <= end:
                x = left + (a - begin) * scale
                parts.append(f'<path d="M{x:.1f} {y - 3}v26" stroke="currentColor" stroke-width="1"/>')
    height = len(epoch.jobs) * lane + 18
    axis = (
        f'<text x="{left}" y="{height - 4}">0</text><text x="{width - 10}" y="{height - 4}" text-anchor="end">'
        f"{units.show_time(end - begin)}</text>"
    )
    label = 'role="img" aria-label="when jobs send"'
    return f'<svg width="{width}" viewBox="0 0 {width} {height}" {label}>{"".join(parts)}{axis}</svg>'


def _table(epoch: Epoch) -> str:
    head = "<tr><th>job</th><th>alone</th><th>step</th><th>slowdown</th><th>unsteered</th><th>in phase</th></tr>"
    rows = "".join(
        f"<tr><td>{escape(job.name)}</td><td>{units.show_time(job.alone_s)}</td><td>{units.show_time(job.step_s)}</td>"
        f"<td>{job.slowdown:.2f}x</td><td>{job.unsteered_slowdown:.2f}x</td><td>{job.in_phase_slowdown:.2f}x</td></tr>"
        for job in epoch.jobs
    )
    return f"<table>{head}{rows}</table>"
