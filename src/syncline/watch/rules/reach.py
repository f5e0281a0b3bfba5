"""What each direction of each link reaches, learnt from its own past: no capacity, plan or option is needed.

The ceiling of a link over a window is the highest short-window rate in it (the mean rate of a look, where nobody
samples). A link that a job uses has a rhythm: over a window long enough its ceiling never falls below some rate. That
floor is learnt for windows of 3 to 48 looks, so that a job whose steps take ten seconds is judged over ten seconds and
one whose steps take a quarter of one within one. Times of trouble are not learnt.

While packets wait for a link it sends as fast as it can, whatever the job does: what it reached at such times is a
floor of its own, which checkpoints and pauses do not lower.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SCALES = (3, 6, 12, 24, 48)
"""Looks of a window; each is twice the one before."""
BLOCK = 12
NUM_BLOCKS = 20
LEAST_BLOCKS = 2
KEPT = 0.15
"""Share of blocks that may be lower: those in which the job went from one phase to another."""
LOW = 0.93
"""A ceiling below this share of its floor has fallen; counters and queues make the rest of the difference."""
STEADY = 0.85
IDLE = 0.02
"""A link whose ceiling is below this share of its top rests."""
RHYTHM = 0.5
"""A floor is one only above this share of the link's top: below, the link rests longer than the window."""
LEAST_Bps = 3e5
"""Twenty packets of 1,500 bytes in a tenth of a second: below, a rate is the chance of a few packets."""


class _Scale:
    """Ceilings over one window, and the least of them in each block of the past, newest last."""

    def __init__(self, looks: int, num_links: int) -> None:
        self.looks, self.block = looks, max(BLOCK, looks)
        self.recent: deque[Floats] = deque(maxlen=looks + 1)
        self.least = np.full(num_links, np.nan)
        self.blocks: deque[Floats] = deque(maxlen=NUM_BLOCKS)
        self.num = 0

    def forget(self) -> None:
        """Forget the newest seconds: what led to an alert is not the past."""
        for values in (self.least, *list(self.blocks)[-1:]):
            values[:] = np.nan

    def learn(self, idle_Bps: Floats) -> None:
        """Add the ceilings of now, but for links that rest: a pause says nothing of what they reach."""
        now = self.recent[-1]
        self.least = np.where(now < idle_Bps, self.least, np.fmin(self.least, now))
        self.num += 1
        if self.num % self.block == 0:
            self.blocks.append(self.least)
            self.least = np.full(len(now), np.nan)

    def floor(self) -> Floats:
        """Return what blocks of the past kept, the newest left out; NaN where unknown.

        Six of seven kept a low ceiling. The next one may be lower by as much as that lies below their middle.
        """
        blocks = list(self.blocks)[:-1]
        if len(blocks) < LEAST_BLOCKS:
            return np.full(len(self.least), np.nan)
        low, middle = (_ranked(np.array(blocks), share, LEAST_BLOCKS) for share in (KEPT, 0.5))
        return np.divide(low * low, middle, out=low, where=middle > 0)


class LinkReach:
    """Follows the ceilings of all links of a table; `look`, then `learn` unless there is trouble."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] | None = None
        self._begin(())

    def _begin(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._scales = [_Scale(looks, len(names)) for looks in (*SCALES, SCALES[0])]
        """The last one is of looks in which packets waited, the others are of all."""
        self._looks: deque[Floats] = deque(maxlen=SCALES[0])
        self._full: deque[Floats] = deque(maxlen=SCALES[0])
        self._tops: deque[Floats] = deque(maxlen=NUM_BLOCKS)
        self._hurt = False
        self._was_low = np.zeros(len(names), bool)
        self._floors: list[Floats] = [np.full(len(names), np.nan)] * len(self._scales)
        self._top = np.full(len(names), np.nan)

    def look(self, names: tuple[str, ...], reach_Bps: Floats, queue_bytes: Floats | float = 0.0) -> None:
        """Take the highest short-window rate of each link in one look, and what waited for it then."""
        if names is not self._names and names != self._names:
            self._align(names)
        self._looks.append(reach_Bps)
        self._full.append(np.where(np.greater(queue_bytes, 0), reach_Bps, np.nan))
        ceiling = np.fmax.reduce(np.array(self._looks))
        before, *_, full = self._scales
        full.recent.append(np.fmax.reduce(np.array(self._full)))
        for scale in self._scales[:-1]:
            if scale.looks > SCALES[0]:  # twice the window before it: now, and as it was half of this one ago
                half = before.recent
                ceiling = np.fmax(half[-1], half[max(0, len(half) - 1 - scale.looks // 2)])
            scale.recent.append(ceiling)
            before = scale

    def learn(self, is_hurt: bool) -> None:
        """Add the look to the past, unless a link is in trouble: all that wait for it are slower too."""
        begins, self._hurt = is_hurt and not self._hurt, is_hurt
        for scale in self._scales:
            if begins:
                scale.forget()
            if not is_hurt:
                scale.learn(IDLE * np.nan_to_num(self._top))
        if not is_hurt and self._scales[0].num % BLOCK == 0:
            self._tops.append(self._scales[2].recent[-1])
            self._top = _ranked(np.array(self._tops), 0.5)
            self._floors = [scale.floor() for scale in self._scales]

    @property
    def top_Bps(self) -> Floats:
        """What each link reaches when it works: the median of its highest rates; NaN before anything is known."""
        return self._top

    def now_Bps(self, looks: int = SCALES[0]) -> Floats:
        """Return the ceiling over a window."""
        return self._scales[SCALES.index(looks)].recent[-1]

    def was_low(self, low: Mask, works: Mask) -> Mask:
        """Tell which links were low when they last worked; a link that rests has not recovered, nor got worse."""
        self._was_low = np.where(works, low, self._was_low)
        return self._was_low

    def is_steady(self) -> Mask:
        """Tell which links were held to one rate in the last looks: something lets just so much pass."""
        looks = np.array(self._looks)
        steady: Mask = np.fmin.reduce(looks) >= STEADY * np.fmax.reduce(looks)
        return steady

    def fallen(self, expected_Bps: Floats, waits: Mask) -> tuple[Mask, Floats, Floats]:
        """Return which links have fallen, with the ceiling and the floor of the shortest window that shows it.

        `expected_Bps` is what another run reached, for links of which too little has been seen. Where packets wait most
        of the time now, what a link reached at such times counts too.
        """
        low, ceiling, floor = np.zeros(len(self._top), bool), self.now_Bps(), expected_Bps
        is_new = np.isnan(self._floors[0])
        for k, scale in enumerate(self._scales):
            known = np.where(is_new, expected_Bps, self._floors[k])
            least_Bps = np.fmax(LEAST_Bps, RHYTHM * np.fmax(self._top, known))
            of_full = scale is self._scales[-1]
            now = self.now_Bps() if of_full else scale.recent[-1]
            fell = ~low & (waits if of_full else True) & (known >= least_Bps) & (now < LOW * known)
            low |= fell
            ceiling, floor = np.where(fell, now, ceiling), np.where(fell | (k == 0), known, floor)
        return low, ceiling, floor

    def _align(self, names: tuple[str, ...]) -> None:
        """Move what is known to the new places of the same names."""
        old = {name: i for i, name in enumerate(self._names or ())}
        scales, looks, full, tops = self._scales, self._looks, self._full, self._tops
        was_hurt, top, floors = self._hurt, self._top, self._floors
        source = np.array([old.get(name, -1) for name in names], np.int64)

        def moved(values: Floats) -> Floats:
            return np.append(values, np.nan)[source]

        self._begin(names)
        self._looks.extend(map(moved, looks))
        self._full.extend(map(moved, full))
        self._tops.extend(map(moved, tops))
        self._hurt, self._top, self._floors = was_hurt, moved(top), list(map(moved, floors))
        for new, scale in zip(self._scales, scales, strict=True):
            new.recent.extend(map(moved, scale.recent))
            new.blocks.extend(map(moved, scale.blocks))
            new.least, new.num = moved(scale.least), scale.num


def _ranked(table: Floats, share: float, least: int = 1) -> Floats:
    """Return the value of each column below which this share of its known values lie; NaN where there are too few."""
    ordered = np.sort(table, axis=0)  # NaN last
    count = (~np.isnan(table)).sum(axis=0)
    row = (share * np.maximum(count - 1, 0)).astype(np.int64)
    return np.where(count >= least, ordered[row, np.arange(table.shape[1])], np.nan)
