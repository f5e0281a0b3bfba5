"""What packets between hosts tell: the host that most of the bad pairs share.

A pair is bad where packets do not come back. Many bad pairs with one host in common are that host's cable, port or
setting; bad pairs without one are the fabric's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from syncline.auditing.report import HostReport
from syncline.describe.names import few
from syncline.finding import Action, Finding, Severity

MOST = 0.8
"""Packets of one size count as not carried when more than this share is lost."""
LOSSY = 0.04
"""Two of the forty packets and their answers: less may be chance."""


def bad_paths(reports: Sequence[HostReport]) -> list[Finding]:
    """Return findings on hosts that others cannot reach, reach with small packets only, or reach with loss."""
    found: list[Finding] = []
    for rule, is_bad, what, meaning, fix in _RULES:
        bad = {
            frozenset((report.host, peer))
            for report in reports
            for peer, shares in report.lost.items()
            if is_bad(*shares) and peer != report.host
        }
        found += _blame(rule, bad, reports, what, meaning, fix)
    return found


def _blame(
    rule: str, bad: set[frozenset[str]], reports: Sequence[HostReport], what: str, meaning: str, fix: str
) -> list[Finding]:
    """Name hosts, most pairs first, until every bad pair is explained."""
    found = []
    num_others = sum(bool(report.lost) for report in reports) - 1
    while bad:
        counts = Counter(host for pair in bad for host in pair)
        host, pairs = max(counts.items(), key=lambda item: (item[1], item[0]))
        others = sorted(other for pair in bad if host in pair for other in pair - {host})
        alone = pairs > 1 or (len(bad) == 1 and num_others <= 1)
        place = host if alone else f"{host}, {others[0]}"
        found.append(
            Finding(rule, Severity.CRITICAL, place, f"{what} with {pairs} of {num_others} others ({few(others, 6)})",
                    "with none", ("UDP echo between hosts",), meaning, fix, action=Action.INSPECT,
                    confidence=pairs / max(1, num_others) if pairs > 1 else 0.5)
        )  # fmt: skip
        bad = {pair for pair in bad if host not in pair}
    return found


_Rule = tuple[str, Callable[[float, float], bool], str, str, str]
_RULES: tuple[_Rule, ...] = (
    ("cluster.path.unreachable", lambda small, large: small > MOST, "no packet comes back",
     "Ranks there cannot connect: the job hangs at its start.",
     "Check cable, address, route and firewall of the host that is named."),
    ("cluster.path.mtu", lambda small, large: small <= MOST < large, "full-size packets are lost, small ones are not,",
     "A port on the way takes smaller packets than the hosts send: connections open and then hang.",
     "Set one MTU on the hosts' interfaces and on every switch port between them; the named host's port first."),
    ("cluster.path.loss", lambda small, large: large <= MOST and LOSSY < (small + large) / 2 <= MOST,
     "packets are lost",
     "Each lost packet costs a timeout or a go-back.",
     "Check cable, optic and switch port of the host that is named."),
)  # fmt: skip
