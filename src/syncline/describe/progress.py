"""Progress of long work: one count of what is done and of what is known to come, reported after every piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

#: Called with what is done and the total known so far; the total may grow while work is under way.
Progress = Callable[[int, int], None]

T = TypeVar("T")


class Meter:
    """Adds up the work of several stages for one `progress(done, total)`; without one it only counts."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress, self.done, self.total = progress, 0, 0

    def expect(self, count: int) -> None:
        """Announce work to come."""
        self.total += count

    def reach(self, count: int) -> None:
        """Report that so much is done in all: what was expected and is not needed counts as done."""
        self.advance(max(count - self.done, 0))

    def advance(self, count: int = 1) -> None:
        """Report finished work."""
        self.done += count
        if self.progress is not None:
            self.progress(self.done, max(self.done, self.total))


def metered(items: Sequence[T], meter: Meter | None) -> Iterator[T]:
    """Yield every item, and report it as done when the next one is asked for."""
    meter = meter or Meter()
    meter.expect(len(items))
    for item in items:
        yield item
        meter.advance()
