"""The own past of many series at once: robust middles and highs of the last minute, the newest seconds left out."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LENGTH = 240
LAG = 12
"""Looks left out at the new end, so that a fault does not become its own standard before it is noticed."""
MIN_LOOKS = 40
REFRESH = 12


class Past:
    """A ring of looks at named series. Series that are in trouble are not learned from."""

    def __init__(self, length: int = LENGTH, lag: int = LAG, min_looks: int = MIN_LOOKS) -> None:
        self._looks: deque[Floats] = deque(maxlen=length + lag)
        self._lag = lag
        self._min = min_looks
        self._names: tuple[str, ...] = ()
        self._cached: dict[float, tuple[int, Floats]] = {}
        self._count = 0

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def add(self, names: tuple[str, ...], values: Floats, trouble: npt.NDArray[np.bool_] | None = None) -> None:
        """Take one look; NaN and troubled series leave a gap."""
        self.align(names)
        self._looks.append(np.where(trouble, np.nan, values) if trouble is not None else values.copy())
        self._count += 1

    def forget(self, trouble: npt.NDArray[np.bool_]) -> None:
        """Forget the newest looks of some series: what led to an alert is not the past."""
        for look in list(self._looks)[-self._lag :]:
            look[trouble] = np.nan

    def quantile(self, share: float) -> Floats:
        """Return a quantile of every series' past; NaN where too little is known. Kept for a few looks."""
        known = self._cached.get(share)
        if known is not None and self._count - known[0] < REFRESH and len(known[1]) == len(self._names):
            return known[1]
        looks = list(self._looks)[: -self._lag or None]
        if len(looks) < self._min:
            return np.full(len(self._names), np.nan)
        table = np.sort(np.array(looks), axis=0)  # NaN last
        count = (~np.isnan(table)).sum(axis=0)
        row = np.clip((share * (count - 1)).round().astype(np.int64), 0, None)
        found: Floats = np.where(count >= self._min, table[row, np.arange(table.shape[1])], np.nan)
        self._cached[share] = (self._count, found)
        return found

    def align(self, names: tuple[str, ...]) -> None:
        """Make these the series, in this order; what is known moves to the new places of the same names."""
        if names is self._names or names == self._names:
            return
        old = {name: i for i, name in enumerate(self._names)}
        source = np.array([old.get(name, -1) for name in names], np.int64)
        moved = [np.append(look, np.nan)[source] for look in self._looks]
        self._looks.clear()
        self._looks.extend(moved)
        self._names = names
        self._cached.clear()
