"""Cost laws: what a family says it costs, in a form that tests compare with counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class CostLaw:
    """Rounds, and bytes sent as shares of the buffer: by the rank that sends most, and by all vertices together.

    Stated by formula; `counts.counted_law` counts the same three from the schedule. With `at_most` the first share is
    an upper bound, for families in which which rank sends most depends on the number of ranks.
    """

    rounds: int
    sent_max: Fraction
    sent_total: Fraction
    at_most: bool = False

    def allows(self, counted: CostLaw) -> bool:
        """Whether a counted cost is what this law says."""
        fits = counted.sent_max <= self.sent_max if self.at_most else counted.sent_max == self.sent_max
        return fits and (counted.rounds, counted.sent_total) == (self.rounds, self.sent_total)


def log2_ceil(number: int) -> int:
    """Return the smallest k with 2^k >= number."""
    return (number - 1).bit_length()
