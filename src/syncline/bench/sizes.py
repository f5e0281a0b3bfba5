"""Sizes of a sweep, as syncline writes them (1KiB..1GiB) and as nccl-tests takes them (-b 8 -e 128M -f 2)."""

from __future__ import annotations

import re

from syncline.describe import units
from syncline.errors import UsageError

_NCCL = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
MAX_SIZES = 10_000


def sizes_of(text: str, *, factor: int = 0, step: str = "") -> list[int]:
    """Return the sizes of "1KiB..1GiB" (doubling, times `factor` or by `step`), of one size, or of several (commas)."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.partition("..")
        if dots:
            found += between(units.size(low), units.size(high), factor=factor, step=units.size(step) if step else 0)
        else:
            found.append(units.size(low))
    if 0 in found:
        raise UsageError("a size of 0 bytes cannot be measured.", hint="Start at 8B, say.")
    return found


def between(low: int, high: int, *, factor: int = 0, step: int = 0) -> list[int]:
    """Return the sizes from low to high: each `factor` times the last (2 unless said), or `step` bytes more."""
    if factor and step:
        raise UsageError("sizes rise by a factor or by a step, not both.", hint="Give -f or -i.")
    if not 0 < low <= high or factor in (-1, 1) or factor < 0 or step < 0:
        raise UsageError(
            f"sizes from {low} to {high} bytes do not rise.", hint="Give the smaller first; a factor is 2 or more."
        )
    found = [low]
    while len(found) <= MAX_SIZES:
        after = found[-1] + step if step else found[-1] * (factor or 2)
        if after > high:
            return found
        found.append(after)
    raise UsageError(f"more than {MAX_SIZES:,} sizes from {low} to {high} bytes.", hint="Use a larger step.")


def nccl_size(text: str) -> int:
    """Read a size as nccl-tests does: "128M" is 128 * 2^20 bytes."""
    match = _NCCL.match(text.strip())
    if match is None:
        raise UsageError(
            f'"{text}" is not a size that nccl-tests takes.', hint="Write a number with K, M or G, as in 128M."
        )
    power = " KMGT".index(match.group(2).upper() or " ")
    return int(float(match.group(1)) * 1024**power)
