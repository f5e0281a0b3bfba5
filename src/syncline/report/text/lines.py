"""Lines of text that fit a screen; money, chances and intervals in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from syncline.describe import units
from syncline.sim.uncertainty import Interval

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


def between(interval: Interval, show: Callable[[float], str]) -> str:
    """Return "90 %: 3.9 s to 5.6 s, 50 %: 4.4 s to 5.0 s"."""
    outer, inner = (" to ".join(show(end) for end in ends) for ends in (interval.p90, interval.p50))
    return f"90 %: {outer}, 50 %: {inner}"


def chance_words(chance: float) -> str:
    """Return a chance as a number that claims no more than is known.

    >>> chance_words(0.999), chance_words(0.634), chance_words(0.0)
    ('over 99 %', '63 %', 'under 1 %')
    """
    return "over 99 %" if chance > 0.99 else "under 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def interval_lines(interval: Interval, show: Callable[[float], str]) -> list[str]:
    """Return the interval, under it what it was made from, and what would narrow it most."""
    lines = [between(interval, show), f"from {interval.basis}"]
    if interval.narrower is not None:
        n = interval.narrower
        now = interval.p90[1] / interval.p90[0] if interval.p90[0] else 0.0
        lines.append(f"x{now:.1f} from end to end; {n.measure} makes it x{n.width:.1f}: {n.command}")
    return lines
