"""What happens to a cable while packets are on their way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinkChange:
    """From `time_s` on the cable of a link has `factor` of its rate, both ways; 0: it is down.

    Switches route around it `reroute_s` later; None: they never learn of it.
    """

    time_s: float
    link: int
    factor: float = 0.0
    reroute_s: float | None = 1e-3
