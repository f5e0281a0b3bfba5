"""What happens while a job arrives or leaves: the steps of all jobs on one engine, across the change.

Jobs that stay keep their slots until the change and take the new ones from it on; a job that arrives begins with the
change, in phase with the worst moment of those that are there; one that leaves ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from syncline.sharing.epochs import Epoch
from syncline.sharing.together import Party, SharedCourse, Slots

BEFORE = 4
AFTER = 8
NEAR = 0.02
"""A step this near to the new mean has settled."""


@dataclass(frozen=True)
class JobTransition:
    """One job across a change: its step before, the longest one around the change, and how long until it settles."""

    name: str
    before_s: float
    worst_s: float
    after_s: float
    settled_after_s: float
    """From the change to the end of the last step that was off by more than a fiftieth; 0: at once."""


@dataclass(frozen=True)
class Transition:
    """A change at a moment, and what it costs the jobs that stay."""

    at_s: float
    arrived: tuple[str, ...]
    left: tuple[str, ...]
    jobs: tuple[JobTransition, ...]


def transition(party: Party, names: Sequence[str], old: Epoch, new: Epoch) -> Transition:
    """Return how jobs get from one epoch into the next; `party` has the jobs of both, in the order of `names`."""
    before = {job.name: job for job in old.jobs}
    after = {job.name: job for job in new.jobs}
    change_s = BEFORE * max(job.step_s for job in old.jobs)
    slots, counts = [], []
    for name in names:
        was, now = before.get(name), after.get(name)
        steps_before = floor(change_s / was.step_s * (1 + 1e-9)) if was else 0
        first = Slots(was.offset_s, was.period_s) if was else Slots()
        later = Slots(change_s + (now.offset_s if now else 0.0), now.period_s if now else 0.0)
        slots.append(ShiftedSlots(first.offset_s, first.period_s, steps_before, later.offset_s, later.period_s))
        longest = max(job.step_s for job in new.jobs)
        counts.append(steps_before + (max(AFTER, round(AFTER * longest / now.step_s)) if now else 0))
    course = party.run(slots, [1.0] * len(names), counts=counts)
    arrived = tuple(name for name in after if name not in before)
    left = tuple(name for name in before if name not in after)
    stay = [n for n, name in enumerate(names) if name in before and name in after]
    jobs = tuple(_across(names[n], course, n, slots[n].num_first, change_s) for n in stay)
    return Transition(new.begin_s, arrived, left, jobs)


@dataclass(frozen=True)
class ShiftedSlots(Slots):
    """Slots that change: the first so many steps by the old ones, later ones by the new."""

    num_first: int = 0
    later_offset_s: float = 0.0
    later_period_s: float = 0.0

    def begins(self, number: int) -> float:
        """Return when step `number` may begin."""
        if number < self.num_first:
            return super().begins(number)
        return self.later_offset_s + (number - self.num_first) * self.later_period_s


def _across(name: str, course: SharedCourse, job: int, num_first: int, change_s: float) -> JobTransition:
    ends = [end for _, end in course.steps[job]]
    took = [b - a for a, b in zip([course.steps[job][0][0], *ends[:-1]], ends, strict=True)]
    before, later = took[1:num_first] or took[:1], took[num_first:]
    settled = sum(later[-3:]) / len(later[-3:])
    off = [end for end, each in zip(ends[num_first:], later, strict=True) if abs(each / settled - 1) > NEAR]
    return JobTransition(
        name, sum(before) / len(before), max(later), settled, max(0.0, off[-1] - change_s) if off else 0.0
    )
