"""When bursts should come: slots for the steps of jobs, so that one computes while another sends.

Jobs whose steps are about as long (or one a small multiple of the other) can be held in step by slots: step k begins
not before offset + k x period. Without slots their phases are as chance left them. Offsets are looked for one job after
the other on a grid of the period; classes (one job before the other) are tried too. What helps less than a hundredth
is not worth steering: the answer is then `nothing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncline.sharing.together import Party, SharedCourse, Slots
from syncline.sim.flow.expand import Share

PHASES = 10
"""Offsets tried in a period."""
NEAR = 0.15
"""How far from a small multiple two steps may be and still be held in step."""
MULTIPLES = (1, 2, 3, 4)
SLACK = 1.01
"""A period is this much longer than the step it holds, so that one late step is made up for."""
WORTH = 0.01
EQUAL = 2e-3
"""Phases whose slowdowns differ by less are as good as each other."""
CHANCES = (0.0, 0.37, 0.71)
"""Phases, in parts of a step, of the second job that stand for chance where nobody steers."""


@dataclass(frozen=True, eq=False)
class Steering:
    """How the jobs are steered, what came of it, and what comes without."""

    how: str
    """nothing, slots or classes."""
    slots: tuple[Slots, ...]
    shares: tuple[Share, ...]
    course: SharedCourse
    unsteered_s: tuple[float, ...]
    """Steps without steering, at the mean over phases that chance may give."""
    in_phase_s: tuple[float, ...]
    """Steps without steering, when all began at the same time: the worst that chance may give to equal jobs."""
    alone_s: tuple[float, ...]

    @property
    def gain(self) -> float:
        """The part of the mean slowdown that steering takes away."""
        before = mean_slowdown(self.unsteered_s, self.alone_s)
        return 1 - mean_slowdown(self.course.step_s, self.alone_s) / before


def mean_slowdown(step_s: Sequence[float], alone_s: Sequence[float]) -> float:
    """Return how many times longer steps are than alone, at the mean over jobs."""
    return sum(a / b for a, b in zip(step_s, alone_s, strict=True)) / len(alone_s)


def most_runs(num_jobs: int) -> int:
    """Return how many runs `steer` makes at most: each job alone, chance, slots moved one by one, and classes."""
    moved = PHASES * (num_jobs - 1) * (2 if num_jobs > 2 else 1)
    return num_jobs + len(CHANCES) + 1 + moved + 1


def steer(party: Party) -> Steering:
    """Return the best of: nothing, slots, classes."""
    num = len(party.patterns)
    alone = tuple(party.alone(job) for job in range(num))
    free = tuple(Slots() for _ in range(num))
    if num == 1 and not party.bursts:
        course = party.run(free, alone, steps=4)
        return Steering("nothing", free, party.shares, course, course.step_s, course.step_s, alone)
    chances = [party.run(_phased(alone, part), alone) for part in (CHANCES if num > 1 else CHANCES[:1])]
    unsteered = tuple(sum(c.step_s[job] for c in chances) / len(chances) for job in range(num))
    together = chances[0].step_s
    best = Steering("nothing", free, party.shares, chances[0], unsteered, together, alone)
    score = mean_slowdown(unsteered, alone)
    found = _slotted(party, alone)
    if found is not None and mean_slowdown(found[1].step_s, alone) < score * (1 - WORTH):
        score = mean_slowdown(found[1].step_s, alone)
        best = Steering("slots", found[0], party.shares, found[1], unsteered, together, alone)
    if num > 1 and len({share.priority for share in party.shares}) == 1 and not party.tenants:
        shares, course = _classed(party, alone)
        # Classes make one job wait for another: only where no job is the worse for it, and slots do less.
        kind = all(a <= b * (1 + WORTH) for a, b in zip(course.step_s, unsteered, strict=True))
        if kind and mean_slowdown(course.step_s, alone) < score * (1 - WORTH):
            best = Steering("classes", free, shares, course, unsteered, together, alone)
    return best


def _phased(alone_s: Sequence[float], part: float) -> tuple[Slots, ...]:
    return tuple(Slots(offset_s=(job * part) % 1.0 * alone) for job, alone in enumerate(alone_s))


def periods(alone_s: Sequence[float]) -> tuple[float, ...] | None:
    """Return a period for each job such that all repeat with the longest, or None where their steps do not fit.

    >>> periods([1.0, 0.95, 0.5])
    (1.0, 1.0, 0.5)
    >>> periods([1.0, 0.7]) is None
    True
    """
    longest = max(alone_s)
    found = []
    for alone in alone_s:
        fits = [m for m in MULTIPLES if 0 <= longest / m - alone <= NEAR * alone]
        if not fits:
            return None
        found.append(longest / fits[0])
    return tuple(found)


def _slotted(party: Party, alone_s: tuple[float, ...]) -> tuple[tuple[Slots, ...], SharedCourse] | None:
    """Return the best slots found, one job's offset after the other, and what comes of them."""
    each = periods(alone_s)
    if each is None or len(alone_s) < 2:
        return None
    # Evenly apart to begin with; a job is moved only where that is better.
    slots = tuple(Slots(job / len(each) * period, period * SLACK) for job, period in enumerate(each))
    best = (slots, party.run(slots, alone_s))
    for _ in range(2 if len(alone_s) > 2 else 1):
        for job in range(1, len(alone_s)):
            tried = [_moved(best[0], job, phase / PHASES) for phase in range(PHASES)]
            courses = [party.run(each, alone_s) for each in tried]
            chosen = middle([mean_slowdown(course.step_s, alone_s) for course in courses])
            if mean_slowdown(courses[chosen].step_s, alone_s) < mean_slowdown(best[1].step_s, alone_s) * (1 - EQUAL):
                best = (tried[chosen], courses[chosen])
    return best


def _moved(slots: tuple[Slots, ...], job: int, part: float) -> tuple[Slots, ...]:
    return (*slots[:job], replace(slots[job], offset_s=part * slots[job].period_s), *slots[job + 1 :])


def middle(scores: Sequence[float]) -> int:
    """Return the middle of the longest run of phases that are as good as the best: there a late step hurts least.

    >>> middle([3.0, 1.0, 1.0, 1.0, 2.0, 1.0])
    2
    """
    good = [score <= min(scores) * (1 + EQUAL) for score in scores]
    num, best = len(scores), (0, 0)
    for first in range(num):
        if good[first] and (not good[first - 1] or all(good)):
            length = next((n for n in range(num) if not good[(first + n) % num]), num)
            best = max(best, (length, -first))
    return (-best[1] + best[0] // 2) % num if best[0] % 2 else (-best[1] + (best[0] - 1) // 2) % num


def _classed(party: Party, alone_s: tuple[float, ...]) -> tuple[tuple[Share, ...], SharedCourse]:
    """Return jobs in classes of their own, the one that moves bytes for the smallest part of its step first."""
    order = sorted(range(len(alone_s)), key=lambda job: alone_s[job])
    shares = list(party.shares)
    for number, job in enumerate(order):
        shares[job] = replace(shares[job], priority=number)
    free = tuple(Slots() for _ in alone_s)
    return tuple(shares), party.run(free, alone_s, shares=shares)
