"""Averages of one step's buckets over a crew: all buckets of a step are one step to heartbeats and reports."""

from __future__ import annotations

import contextlib

import torch

from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.crew import Formation
from syncline.runtime.periodic.crew_averaging import CrewAveraging
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.step import Step, StepReport
from syncline.runtime.wire.links import GroupLinks


class StepAveraging(CrewAveraging):
    """Averages the buckets of each step over whoever is in the crew."""

    _record: Step | None = None

    def begin(self) -> None:
        """Note that a step's computation begins here."""
        self._synchronizer.begin()
        self._record = None

    def launch(self, index: int, buffer: torch.Tensor, layout: Layout, step: int) -> Flight:
        """Begin to average a bucket in place."""
        if self.num_ranks == 1:
            return Flight(step, landed=True)
        if self._record is None:
            self._record = self._synchronizer.open_step()
        self.remember(index, layout)
        flight = Flight(step)
        self._synchronizer.average(flight.order(index, buffer, layout, self._record))
        return flight

    def form_anew(self) -> Formation:
        """Connect those who are left after a loss."""
        self._record = None
        return super().form_anew()

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which this rank is not called lost for standing still."""
        return self._synchronizer.busy()

    def report(self) -> StepReport:
        """Return the last complete step in numbers."""
        return self._synchronizer.report()

    def _start(self, links: GroupLinks) -> None:
        self._record = None
        super()._start(links)
