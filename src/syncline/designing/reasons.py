"""Reasons: why the second choice lost, what another million buys, and at which price of optics the answer flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncline.designing.point import DesignPoint
from syncline.planning.evaluate import RESOLUTION

FACTORS = (0.1, 0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 5.0, 10.0)
MILLION = 1e6


@dataclass(frozen=True)
class Million:
    """What the next dearer point of the front buys."""

    label: str
    baseline: str
    """The cheaper point that it is compared with."""
    extra_usd: float
    faster: float
    """Share of the time a token that it saves."""

    @property
    def faster_per_million(self) -> float:
        return self.faster / (self.extra_usd / MILLION)


@dataclass(frozen=True)
class Flip:
    """Another choice is best once optics cost so many times as much."""

    factor: float
    label: str


def tied(best: DesignPoint, other: DesignPoint) -> bool:
    """Whether executing cannot tell which of two has the cheaper token."""
    return abs(other.usd_per_token / best.usd_per_token - 1) <= RESOLUTION


def recommended(points: Sequence[DesignPoint]) -> DesignPoint:
    """Return the cheapest executed token; of those that tie with it the one that keeps most after a failure."""
    executed = [point for point in points if point.executed] or points
    cheapest = min(executed, key=lambda point: point.usd_per_token)
    ties = [point for point in executed if tied(cheapest, point)]
    return min(ties, key=lambda point: (-round(point.after_one, 2), point.usd_per_token))


def ranked(points: Sequence[DesignPoint]) -> tuple[DesignPoint, ...]:
    """Return the recommended point, then the others by what a token costs, those last that cannot be executed."""
    first = recommended(points) if points else None
    others = sorted(points, key=lambda point: (not point.executed, point.usd_per_token, point.choice))
    return tuple(sorted(others, key=lambda point: point is not first))


def why_recommended(points: Sequence[DesignPoint]) -> str:
    """Return why the recommended point is recommended, against the cheapest token and against the fastest step."""
    best = recommended(points)
    cheapest, fastest = min(points, key=lambda p: p.usd_per_token), min(points, key=lambda p: p.s_per_token)
    ties = [point for point in points if point is not best and tied(cheapest, point)]
    words = ["the cheapest token" if best is cheapest else f"a token within {RESOLUTION:.0%} of the cheapest"]
    if ties:
        words.append(f"of {len(ties) + 1} that tie it keeps most after a failed switch")
    if fastest is not best and best.s_per_token > fastest.s_per_token * (1 + RESOLUTION):
        extra = (fastest.capital_usd - best.capital_usd) / MILLION
        faster = 1 - fastest.s_per_token / best.s_per_token
        words.append(f"the fastest ({fastest.choice.label}) is {faster:.1%} faster for ${extra:,.2f} M more")
    return "; ".join(words)


def why_lost(best: DesignPoint, other: DesignPoint) -> str:
    """Return why the second choice lost, in its own figures."""
    slower = other.s_per_token / best.s_per_token - 1
    dearer = other.usd_per_year / best.usd_per_year - 1
    token = other.usd_per_token / best.usd_per_token - 1
    power = other.power_w / best.power_w - 1
    parts = [f"a step {abs(slower):.2%} {'longer' if slower > 0 else 'shorter'}" if abs(slower) > 5e-5 else "as fast",
             f"{abs(dearer):.2%} {'dearer' if dearer > 0 else 'cheaper'} a year",
             f"{abs(power):.2%} {'more' if power > 0 else 'less'} power"]  # fmt: skip
    left = other.after_one - best.after_one
    if abs(left) > 0.005:
        parts.append(f"keeps {other.after_one:.0%} instead of {best.after_one:.0%} after a failed switch")
    return f"a token costs {token:+.2%}: " + ", ".join(parts)


def millions(front: Sequence[DesignPoint]) -> list[Million]:
    """Return what each dearer point buys, from the cheapest to the fastest, where it buys time."""
    found: list[Million] = []
    rising = sorted(front, key=lambda p: (p.capital_usd, p.s_per_token))
    last = rising[0] if rising else None
    for point in rising[1:]:
        assert last is not None
        if point.s_per_token < last.s_per_token * (1 - 1e-4) and point.capital_usd > last.capital_usd:
            extra_usd, faster = point.capital_usd - last.capital_usd, 1 - point.s_per_token / last.s_per_token
            found.append(Million(point.choice.label, last.choice.label, extra_usd, faster))
            last = point
    return found


def flips(points: Sequence[DesignPoint]) -> list[Flip]:
    """Return the prices of optics, as multiples of today's, between which another choice is best."""
    if not points:
        return []
    best = recommended(points).choice
    found: list[Flip] = []
    for factor in FACTORS:
        chosen = recommended([_with_optics(point, factor) for point in points]).choice
        if chosen != best and (not found or found[-1].label != chosen.label):
            found.append(Flip(factor, chosen.label))
    return found


def _with_optics(point: DesignPoint, factor: float) -> DesignPoint:
    """Return the point where optics cost `factor` times as much; capital keeps its share of a year's cost."""
    dearer = 1 + (factor - 1) * point.optics_usd / point.capital_usd
    return replace(point, usd_per_year=point.usd_per_year * dearer, capital_usd=point.capital_usd * dearer)
