"""Lines of text that fit a screen, and money in words."""

from __future__ import annotations

import re
import textwrap

from syncline.describe import units

_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:[kKMGTP]i?)?B\b|[kMBT]\b|[num]?s\b|h\b|min\b|days\b|GPUs\b))")


def folded(line: str, width: int = 118) -> list[str]:
    """Return a line in pieces that fit a screen, later ones under the first word of its text."""
    start = re.match(r" {2}\w[\w ]{9} (?=\S)| {4}\d\. | *", line)
    under = " " * (start.end() if start else 0)
    if len(line) <= width:
        return [line]
    # A number and its unit stay on one line.
    bound = _UNIT.sub("\N{NO-BREAK SPACE}", line)
    parts = textwrap.wrap(bound, width, subsequent_indent=under, break_on_hyphens=False)
    return [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts]


def per_million(cost_per_token_usd: float) -> str:
    """Return the price of a million tokens; they are cheap enough for a tenth of a cent to matter."""
    usd = cost_per_token_usd * 1e6
    return f"${usd:.3f}" if usd < 10 else units.show_money(usd)
