"""One cause, its effects beneath: which alert explains which, so that a broken switch is one line and not forty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.finding import Finding

ROOTS = (
    "rail.dead", "link.down", "link.degraded", "link.loss", "link.errors", "job.straggler", "link.microburst",
    "link.pause",
)  # fmt: skip
"""What can be a cause, the surest first."""
SLACK_S = 30.0
"""An effect may be noticed this much before its cause: rules take their own time."""
_OF_THE_JOB = "job."
_SIDE_EFFECTS = {
    "rail.imbalance": ("rail.dead", "link.down", "link.degraded", "link.loss"),
    "host.retransmissions": ("link.loss", "link.errors", "link.down", "link.degraded", "rail.dead"),
    "link.pause": ("link.degraded",),
}


def causes(findings: Sequence[Finding], rail_of: Mapping[str, int]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the (rule, place) of the cause of each alert that has one among the others."""
    found = {}
    for finding in findings:
        cause = _cause(finding, findings, rail_of)
        if cause is not None:
            found[finding.rule, finding.place] = (cause.rule, cause.place)
    return {effect: _first(cause, found) for effect, cause in found.items()}


def _first(cause: tuple[str, str], found: Mapping[tuple[str, str], tuple[str, str]]) -> tuple[str, str]:
    """Return the cause of the cause, as far as it goes."""
    for _ in range(len(found)):
        if cause not in found:
            break
        cause = found[cause]
    return cause


def _cause(effect: Finding, findings: Sequence[Finding], rail_of: Mapping[str, int]) -> Finding | None:
    others = [f for f in findings if f.rule in ROOTS]
    if effect.rule == "rail.dead":
        return None
    for other in others:
        if other.rule == "rail.dead" and other.place == f"rail {rail_of.get(effect.place, -1)}":
            return other
    if effect.rule in _SIDE_EFFECTS:
        return _surest([f for f in others if f.rule in _SIDE_EFFECTS[effect.rule]])
    if is_of_job(effect.rule) or effect.rule == "job.stalled":
        return _surest([f for f in others if (f.since_s or 0.0) <= (effect.since_s or 0.0) + SLACK_S])
    if effect.rule == "link.degraded":  # flows of a link that is down take other ways and share them
        down = _surest([f for f in others if f.rule == "link.down" and _began(f) <= _began(effect) + SLACK_S])
        if down is not None:
            return down
    back = [f for f in others if f.rule == effect.rule and f.place == opposite(effect.place)]
    if back and (_began(back[0]), back[0].place) < (_began(effect), effect.place):
        return back[0]  # both ways of one cable
    if effect.rule in ("link.degraded", "link.loss"):
        # Loss makes a link slow, and a slow link overflows: what was there first is the cause.
        pair = {"link.degraded": "link.loss", "link.loss": "link.degraded"}[effect.rule]
        same = [f for f in others if f.rule == pair and f.place == effect.place]
        return same[0] if same and (same[0].since_s or 0.0, pair) < (effect.since_s or 0.0, effect.rule) else None
    return None


def is_of_job(rule: str) -> bool:
    """Tell whether a rule says what the job feels of something else; a job that hangs is more than that."""
    return rule.startswith(_OF_THE_JOB) and rule not in ("job.straggler", "job.stalled")


def opposite(place: str) -> str:
    """Return the other direction of a cable whose ends are named; nothing where they are not."""
    src, arrow, dst = place.partition(" -> ")
    return f"{dst} -> {src}" if arrow else ""


def _began(finding: Finding) -> float:
    return finding.since_s or 0.0


def _surest(found: list[Finding]) -> Finding | None:
    return min(found, key=lambda f: (ROOTS.index(f.rule), f.since_s or 0.0), default=None)
