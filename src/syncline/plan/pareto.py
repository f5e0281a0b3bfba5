"""Time against money: the numbers of GPUs at which no other is both faster and cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class PricePoint(Protocol):
    """Something that has a time and a price."""

    @property
    def step_time_s(self) -> float: ...
    @property
    def cost_per_token_usd(self) -> float: ...


Point = TypeVar("Point", bound=PricePoint)


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in both time and price, fastest first."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.step_time_s, p.cost_per_token_usd)):
        if not best or point.cost_per_token_usd < best[-1].cost_per_token_usd:
            best.append(point)
    return best


def gpu_counts(num_gpus: int, per_host: int, smallest: float = 1 / 16) -> list[int]:
    """Return numbers of GPUs to try below a cluster's: halves and three quarters, in whole hosts."""
    counts = {num_gpus}
    size = num_gpus
    while size > max(num_gpus * smallest, per_host):
        counts |= {size, size * 3 // 4}
        size //= 2
    whole = {max(per_host, n // per_host * per_host) for n in counts if n >= num_gpus * smallest}
    return sorted(n for n in whole if n <= num_gpus)
