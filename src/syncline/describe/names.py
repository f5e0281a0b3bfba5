"""Names as people list them: in the order of their numbers, and a few of many."""

from __future__ import annotations

import re
from collections.abc import Sequence


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts `eth2` before `eth10`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def few(names: Sequence[object], most: int = 4) -> str:
    """Return the first names, and how many more there are: "a, b and 3 more"."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
