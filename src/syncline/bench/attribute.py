"""Which part explains the slow flows: attribution from a table of measurements, a pure function.

Every flow has a slowness: the log of expected over measured rate. A flow is as slow as the slowest part it crosses. A
part is blamed when the flows that cross it are slow and those that do not are not: for each part the likelihood of the
table with that part slow is compared with the likelihood without, under noise with heavy tails, so that one odd
measurement convinces nobody. The best part is taken, what it explains is taken out, and so on; at the end each part
that the others explain just as well is dropped again.

Where a hash decides whether a flow crosses a part, the flow counts with that chance: two uplinks that cannot be told
apart share the blame, and their confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syncline.bench.incidence import Incidence, PartKind, SuspectPart

Floats = NDArray[np.float64]
LEAST_NOISE = 0.02
LEAST_SLOWNESS = 0.07
"""About 7 % below the expected rate; less is not worth a visit to the machine room."""
LEAST_GAIN = 6.0
"""In log likelihood: a part that does not make the table e^6 times likelier is not blamed."""

LEAST_FLOWS = 2
"""Measurements that must show it: one alone may be anything, and the second pass asks again."""

_FREEDOM = 4.0
_PRIOR = {
    PartKind.HOST_TX: 0.0, PartKind.HOST_RX: 0.0, PartKind.LINK: 0.0, PartKind.CABLE: -1.5,
    PartKind.UPLINKS: -2.0, PartKind.DOWNLINKS: -2.0, PartKind.LEAF: -2.0, PartKind.SPINE: -2.0,
}  # fmt: skip
"""Cables, optics and hosts fail more often than whole switches; and a larger part fits more by chance."""


@dataclass(frozen=True)
class Suspect:
    """A part that explains slow flows: how slow it is, how sure that is, and which others explain them as well.

    `factor` is measured over expected rate of the flows that cross it; `flows` are their rows in the table.
    """

    part: SuspectPart
    factor: float
    confidence: float
    gain: float
    flows: tuple[int, ...]
    among: tuple[SuspectPart, ...] = ()


@dataclass(frozen=True, eq=False)
class Attribution:
    """All suspects, the worst first; the slowness all flows share (log), and the noise of the table (log)."""

    suspects: tuple[Suspect, ...]
    offset: float
    noise: float
    slowness: Floats

    @property
    def typical_factor(self) -> float:
        """Measured over expected rate of flows that nothing is wrong with."""
        return float(np.exp(-self.offset))


def attribute(
    measured_Bps: Floats, expected_Bps: Floats, incidence: Incidence, *, weight: Floats | None = None,
    max_suspects: int = 8,
) -> Attribution:  # fmt: skip
    """Return what explains a table of flows; `weight` counts a quiet second measurement for more than a first."""
    with np.errstate(divide="ignore"):
        raw = np.log(np.maximum(expected_Bps, 1e-9)) - np.log(np.maximum(measured_Bps, 1e-9))
    offset, noise = _healthy(raw)
    slowness = raw - offset
    weights = np.ones(len(slowness)) if weight is None else np.asarray(weight, dtype=np.float64)
    search = _Search(slowness, incidence.chance, weights, noise, [_PRIOR[part.kind] for part in incidence.parts])
    chosen = search.greedy(max_suspects)
    suspects = [_suspect(search, incidence, chosen, column) for column in chosen]
    suspects.sort(key=lambda suspect: -suspect.gain)
    return Attribution(tuple(suspects), offset, noise, slowness)


def _healthy(raw: Floats) -> tuple[float, float]:
    """Return what healthy flows are slow by, and their noise: the fastest cluster that holds a tenth of all flows.

    Not the median: one bad leaf of two slows three quarters of all flows.
    """
    values = np.sort(raw)
    gaps = np.diff(values)
    typical = float(np.median(gaps)) if len(gaps) else 0.0
    cut = max(0.08, 12 * typical)
    edges = [0, *(np.flatnonzero(gaps > cut) + 1).tolist(), len(values)]
    clusters = [values[a:b] for a, b in pairwise(edges)]
    enough = max(2, len(values) // 10)
    fast = next((cluster for cluster in clusters if len(cluster) >= enough), values)
    low = fast[: max(enough, len(fast))]
    middle = float(np.median(low))
    noise = 1.4826 * float(np.median(np.abs(low - middle)))
    # A tail of mildly slow flows in the same cluster must not pull the middle up.
    left = low[low <= middle]
    noise = min(noise, 1.4826 * float(np.median(middle - left)) if len(left) else noise)
    return middle, max(noise, LEAST_NOISE)


class _Search:
    """Greedy search for the parts whose slowness makes the table most likely."""

    def __init__(self, slowness: Floats, chance: Floats, weight: Floats, noise: float, prior: Sequence[float]) -> None:
        self.slowness = slowness
        self.chance = chance
        self.weight = weight
        self.noise = noise
        self.prior = np.asarray(prior)
        self.least = max(LEAST_SLOWNESS, 3 * noise)

    def greedy(self, most: int) -> dict[int, float]:
        """Return the parts chosen and how slow each is, as a log."""
        chosen: dict[int, float] = {}
        while len(chosen) < most:
            gain, slow = self.gains(self.base(chosen))
            gain[list(chosen)] = -np.inf
            best = int(np.argmax(gain))
            if gain[best] < LEAST_GAIN:
                break
            chosen[best] = float(slow[best])
        while (idle := next((c for c in sorted(chosen, key=chosen.__getitem__) if self._idle(c, chosen)), -1)) >= 0:
            del chosen[idle]
        return chosen

    def _idle(self, column: int, chosen: dict[int, float]) -> bool:
        """Return whether the other parts explain the table just as well as with this one."""
        rest = {c: slow for c, slow in chosen.items() if c != column}
        own_gain, _ = self.best(column, self.base(rest))
        return min(own_gain, self.total(chosen) - self.total(rest)) < LEAST_GAIN

    def gains(self, base: Floats) -> tuple[Floats, Floats]:
        """Return for each part how much likelier the table is with it slow, at its best slowness, and that slowness."""
        each = np.array([self.best(column, base) for column in range(self.chance.shape[1])])
        return each[:, 0], each[:, 1]

    def best(self, column: int, base: Floats) -> tuple[float, float]:
        """Return a part's gain and slowness; what other parts explain but for a difference not worth a visit is theirs.

        A leaf's slowness is known only so well: a host below it is a second fault when it is slower than the leaf by
        what would make it one alone.
        """
        rows = np.flatnonzero(self.chance[:, column] > 0)
        slow_rows = self.slowness[rows] > self.least
        if slow_rows.sum() < LEAST_FLOWS:
            return -np.inf, 0.0
        values = np.unique(self.slowness[rows][slow_rows])
        tries = np.quantile(values, np.linspace(0, 1, min(9, len(values))))
        slower = (tries[:, None] - base[rows] > self.least).sum(axis=1) >= LEAST_FLOWS
        each = np.where(slower, self._gain(rows, column, base, tries) + self.prior[column], -np.inf)
        most = int(np.argmax(each))
        return float(each[most]), float(tries[most])

    def _gain(self, rows: NDArray[np.int64], column: int, base: Floats, slow: Floats) -> Floats:
        """Return the gain at each of several slownesses."""
        chance = self.chance[rows, column]
        without = self._log(self.slowness[rows] - base[rows])
        with_it = self._log(self.slowness[rows] - np.maximum(base[rows], slow[:, None]))
        if (chance >= 1).all():
            both = with_it
        else:
            with np.errstate(divide="ignore"):
                both = np.logaddexp(np.log(chance) + with_it, np.log1p(-chance) + without)
        gain: Floats = (self.weight[rows] * (both - without)).sum(axis=1)
        return gain

    def base(self, chosen: dict[int, float]) -> Floats:
        """Return how slow each flow should be with these parts slow; where a hash decides, what fits better."""
        base = np.zeros(len(self.slowness))
        for column, slow in sorted(chosen.items(), key=lambda item: -item[1]):
            chance = self.chance[:, column]
            slower = np.maximum(base, slow)
            fits = self._log(self.slowness - slower) > self._log(self.slowness - base)
            base = np.where((chance >= 1) | ((chance > 0) & fits), slower, base)
        return base

    def total(self, chosen: dict[int, float]) -> float:
        """Return the log likelihood of the table with these parts slow."""
        prior = float(self.prior[list(chosen)].sum()) if chosen else 0.0
        return float((self.weight * self._log(self.slowness - self.base(chosen))).sum()) + prior

    def _log(self, error: Floats) -> Floats:
        out: Floats = -(_FREEDOM + 1) / 2 * np.log1p((error / self.noise) ** 2 / _FREEDOM)
        return out


def _suspect(search: _Search, incidence: Incidence, chosen: dict[int, float], column: int) -> Suspect:
    """Return one part with its confidence: its share of the likelihood among all that could stand in its place."""
    rest = {c: slow for c, slow in chosen.items() if c != column}
    gain, _ = search.gains(search.base(rest))
    others = np.array([c for c in range(len(gain)) if c not in rest and np.isfinite(gain[c])])
    score = gain[others] - gain[others].max()
    share = np.exp(score) / np.exp(score).sum()
    own = float(share[others == column][0])
    alike = tuple(
        incidence.parts[c] for c, s in zip(others.tolist(), score.tolist(), strict=True) if c != column and s > -1.0
    )
    rows = np.flatnonzero(search.chance[:, column] > 0)
    slow = [int(r) for r in rows if search.slowness[r] > search.least]
    # Few flows, or a gain that is barely enough, cannot be certain however alone they stand.
    sure = own * (1 - np.exp(-max(0.0, float(gain[column])) / 8)) * len(slow) / (len(slow) + 0.5)
    return Suspect(
        incidence.parts[column],
        float(np.exp(-chosen[column])),
        round(float(sure), 3),
        float(gain[column]),
        tuple(slow),
        alike,
    )
