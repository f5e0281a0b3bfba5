"""Points: fabrics with their price, power, resilience and steps; limits that they keep, and the front of the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from syncline.describe import units
from syncline.describe.model import reported
from syncline.designing.choice import FabricChoice
from syncline.errors import UsageError
from syncline.planning.cost.owning import HOURS_PER_YEAR
from syncline.planning.evaluate import RESOLUTION

SAME_SHARE = 0.005
"""Shares that remain after a failure and differ by less are printed alike."""


@dataclass(frozen=True)
class Limits:
    """What a design must keep to; None: no limit."""

    budget_usd: float | None = None
    power_w: float | None = None
    racks: int | None = None
    days: float | None = None
    tokens: float | None = None
    after_one: float = 0.0
    """The least share that must remain after a failed switch."""

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if name != "after_one" and limit is not None and not limit > 0:
                short = name.removesuffix("_usd").removesuffix("_w")
                raise UsageError(
                    f"`{short}` must be positive, got {limit:g}.", hint=f"Raise it, or leave `{short}` out."
                )
        if self.days is not None and self.tokens is None:
            raise UsageError("`days` needs `tokens`: how much must be trained by then.", hint="Give `tokens` 15T, say.")

    def broken(self, point: DesignPoint) -> Miss | None:
        """Return the limit that a point breaks, or nothing."""
        if point.after_one < self.after_one:
            return Miss("resilience", point.after_one, self.after_one)
        days = self.tokens * point.s_per_token / 86_400 if self.tokens else 0.0
        checks = (
            ("budget", self.budget_usd, point.capital_usd), ("power", self.power_w, point.power_w),
            ("racks", self.racks, point.racks), ("deadline", self.days, days),
        )  # fmt: skip
        return next(
            (Miss(name, value, most) for name, most, value in checks if most is not None and value > most), None
        )


@dataclass(frozen=True)
class Miss:
    """A limit that a fabric breaks: what it has, and what it may have."""

    limit: str
    value: float
    asked: float

    @property
    def by(self) -> float:
        """The part of the limit by which it is missed."""
        return abs(self.value / self.asked - 1)

    @property
    def words(self) -> str:
        """What misses the limit by how much, in the limit's own unit."""
        if self.limit == "resilience":
            return f"keeps {self.value:.0%} after one failed switch where {self.asked:.0%} is asked"
        shown: dict[str, Callable[[float], str]] = {
            "budget": units.show_money, "power": units.show_power, "deadline": "{:,.1f} days".format,
            "racks": lambda n: f"{n:,.0f} rack{'' if n == 1 else 's'}",
        }  # fmt: skip
        show = shown[self.limit]
        verb = "takes" if self.limit == "deadline" else "needs"
        return (
            f"{verb} {show(self.value)}, {show(self.value - self.asked)} ({self.by:.1%}) more than {show(self.asked)}"
        )


@dataclass(frozen=True)
class DesignPoint:
    """One fabric with its price, power and resilience, and how fast the jobs run on it."""

    choice: FabricChoice
    num_gpus: int
    capital_usd: float
    network_usd: float
    optics_usd: float
    usd_per_year: float
    power_w: float
    racks: int
    after_one: float
    after_two: float
    worst: str
    utilisation: float = 1.0
    """Share of the year in which the cluster is used."""
    s_per_token: float = 0.0
    """Seconds a token, the mean over the jobs by their weights."""
    paid_s_per_token: float = 0.0
    """The same with the time that failures take, for the part of the GPUs that a job pays for."""
    plans: tuple[str, ...] = ()
    step_s: tuple[float, ...] = ()
    idle_gpus: int = 0
    """GPUs that the best plan of a job leaves idle, the most of all jobs."""
    executed: bool = True
    """Whether the steps were executed at flow level; it knows neither sums in switches nor cards that compress."""

    @reported
    def label(self) -> str:
        return self.choice.label

    @reported
    def usd_per_token(self) -> float:
        """What a token costs, as `plan` prices it: idle time and the time that failures take are paid for."""
        return self.usd_per_year / (HOURS_PER_YEAR * 3600 * self.utilisation) * self.paid_s_per_token

    def at_least(self, other: DesignPoint) -> bool:
        """Whether this costs no more than another and is as good within what executing resolves."""
        slower, hotter = self.s_per_token / (other.s_per_token or math.inf), self.power_w / other.power_w
        alike = max(slower, hotter) <= 1 + RESOLUTION and self.after_one >= other.after_one - SAME_SHARE
        return alike and self.usd_per_year <= other.usd_per_year


Card = tuple[str, int, int, str, str, int, bool]


def card_of(point: DesignPoint) -> Card:
    """Return what decides the fastest step that any network of a point's cards allows."""
    c = point.choice
    return c.host, point.num_gpus, c.nics, c.nic, c.link, c.planes, c.reduction


@dataclass
class DesignSearch:
    """What a search has looked at."""

    points: list[DesignPoint] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    nearest: dict[str, Miss] = field(default_factory=dict)
    """By limit, the fabric that breaks it by the least."""
    num_choices: int = 0
    num_bounded: int = 0
    num_planned: int = 0
    complete: bool = True

    def miss(self, one: Miss, count: int = 1) -> None:
        """Count fabrics that break a limit."""
        self.over[one.limit] = self.over.get(one.limit, 0) + count
        self.nearest[one.limit] = min(self.nearest.get(one.limit, one), one, key=lambda each: each.by)

    def front(self) -> list[DesignPoint]:
        """Return the points that no cheaper one is as good as, or is but for its brand; the cheapest token first."""
        kept: dict[tuple[object, ...], DesignPoint] = {}
        for point in sorted(self.points, key=cheap_first):
            if not any(other.at_least(point) for other in kept.values()):
                brandless = replace(point.choice, switch="")
                kept.setdefault((brandless, round(point.after_one, 2), point.executed), point)
        return sorted(kept.values(), key=lambda p: (not p.executed, p.usd_per_token, p.choice))


def cheap_first(point: DesignPoint) -> tuple[float, FabricChoice]:
    """Return what orders points by their cost, so that cheap ones bound the dear ones."""
    return point.usd_per_year, point.choice
