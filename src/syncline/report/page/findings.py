"""Findings as one self-contained page: the worst first, each with evidence, meaning and fix; it prints as it looks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from syncline.bench.verdict import Judgement
from syncline.describe.units import show_size, show_time
from syncline.finding import Finding, Severity
from syncline.report.page.shell import document

_STYLE = """
:root{color-scheme:light dark;--ink:#18202b;--soft:#4f5a69;--paper:#fff;--critical:#a8201a;--warning:#8f4200;
--ok:#0b6b57;--unknown:#5b3a86;--p:#1f5fae;--m:#b45300}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#a5b1c0;--paper:#0e1218;--line:#34404f;--critical:#ff8a80;
--warning:#ffb454;--ok:#56d6b0;--unknown:#c89bf0;--p:#7fb3ff;--m:#ffb454}}
body{font:14px/1.5 system-ui,sans-serif;margin:24px auto;max-width:1000px;padding:0 16px;color:var(--ink);
background:var(--paper)}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px}.soft{color:var(--soft)}
article{border-left:5px solid var(--c);padding:4px 12px;margin:10px 0;break-inside:avoid;overflow-wrap:anywhere}
article p{margin:3px 0}.fix{font-weight:600}.sev{color:var(--c);font-weight:700;text-transform:uppercase;font-size:12px}
.critical{--c:var(--critical)}.warning{--c:var(--warning)}.ok{--c:var(--ok)}.unknown{--c:var(--unknown)}
pre{overflow:auto;font-size:12px}text{fill:var(--ink);font:11.5px system-ui,sans-serif}
.p{fill:var(--p)}.m{fill:var(--m)}
"""
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2, Severity.OK: 3}
_BAR, _ROW, _LEFT = 560, 34, 190


def findings_page(title: str, lines: Sequence[str], findings: Sequence[Finding], body: str = "") -> str:
    """Return the page: the first of `lines` as the answer, findings worst first, `body` between, all lines as text."""
    ordered = sorted(findings, key=lambda finding: _ORDER[finding.severity])
    said = [_finding(finding) for finding in ordered if finding.severity is not Severity.OK]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(lines[0]) if lines else ""}</p>',
        "<h2>What was found</h2>",
        *(said or ['<article class="ok"><p>Nothing that slows or breaks training was found.</p></article>']),
        body,
        '<h2>The same as text</h2><pre tabindex="0">' + escape("\n".join(lines)) + "</pre>",
    ]
    return document(title, _STYLE, "".join(parts))


def _finding(finding: Finding) -> str:
    cost = finding.cost_usd_per_day
    price = f" · ${cost:,.0f} a day" if cost else ""
    seen = f"{finding.observed}; expected {finding.expected}" if finding.expected else finding.observed
    rows = [
        f'<p><span class="sev">{finding.severity.label}</span> <b>{escape(finding.place)}</b> '
        f'<span class="soft">{escape(finding.rule)}{price}</span></p>',
        f"<p>{escape(seen)}</p>",
        f'<p class="fix">Fix: {escape(finding.fix)}</p>' if finding.fix else "",
        f"<p>{escape(finding.meaning)}</p>" if finding.meaning else "",
        f'<p class="soft">Evidence: {escape("; ".join(finding.evidence))}</p>' if finding.evidence else "",
    ]
    return f'<article class="{finding.severity.label}">{"".join(rows)}</article>'


def sweep_chart(rows: Sequence[Judgement]) -> str:
    """Return measured beside predicted time of each line of a sweep, as bars on one scale for each size."""
    judged = [row for row in rows if row.expected is not None]
    if not judged:
        return ""
    marks = []
    for k, row in enumerate(judged):
        assert row.expected is not None
        measured_s, predicted_s = row.measured.timing.median_s, row.expected.time_s
        top, y = max(measured_s, predicted_s) or 1.0, k * _ROW
        name = f"{row.measured.algorithm} {show_size(row.measured.size_bytes)}"
        for offset, seconds, kind in ((4, predicted_s, "p"), (16, measured_s, "m")):
            width = max(1.0, _BAR * seconds / top)
            marks.append(f'<rect class="{kind}" x="{_LEFT}" y="{y + offset}" width="{width:.1f}" height="10"/>')
            marks.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + offset + 9}">{show_time(seconds)}</text>')
        marks.append(f'<text x="{_LEFT - 8}" y="{y + 19}" text-anchor="end">{escape(name)}</text>')
    size = f'viewBox="0 0 {_LEFT + _BAR + 110} {_ROW * len(judged) + 6}" width="100%"'
    return (
        '<h2>Measured beside predicted</h2><p class="soft">Each pair on its own scale: '
        "the upper bar is predicted, the lower measured.</p>"
        f'<svg role="img" aria-label="Measured and predicted time of each line" {size}>{"".join(marks)}</svg>'
    )
