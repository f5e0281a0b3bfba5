"""Dragonfly: exchange inside the group, then directly between all pairs of groups, then inside again.

Cost law (g groups of m ranks, n = gm): reduce-scatter inside (1 round), all-reduce over the ranks with the same place
in every group by direct exchange (2 rounds), all-gather inside (1 round); every rank sends 2(n-1)/n of the buffer and
only 2(g-1)/n of it leaves the group. Each pair of groups exchanges the same bytes, so every global link is used
equally and no group is passed through; inside a group every pair of ranks talks, so every local link is used too.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from syncline.schedule.collective import Kind
from syncline.schedule.family.hierarchical import hierarchical
from syncline.schedule.law import CostLaw
from syncline.schedule.schedule import Schedule


def dragonfly(groups: int, per_group: int, kind: Kind = Kind.ALL_REDUCE, *, channels: int = 1) -> Schedule:
    """Return a schedule for a dragonfly of `groups` groups of `per_group` ranks: 4 rounds, 2(n-1)/n of the buffer."""
    made = hierarchical((groups, per_group), kind, families=("direct", "direct"), channels=channels)
    return replace(made, name=f"dragonfly {groups} groups of {per_group}", family="dragonfly")


def dragonfly_law(groups: int, per_group: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `dragonfly` promises."""
    n, phases = groups * per_group, 2 if kind is Kind.ALL_REDUCE else 1
    rounds = phases * ((groups > 1) + (per_group > 1))
    return CostLaw(rounds, Fraction(phases * (n - 1), n), Fraction(phases * (n - 1)))
