"""Cost laws: what a family says it costs, in a form that tests compare with counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class CostLaw:
    """Rounds, and bytes sent as shares of the buffer: by the vertex that sends most, and by all together.

    Stated by formula; `counts` counts the same three from the schedule.
    """

    rounds: int
    sent_max: Fraction
    sent_total: Fraction
