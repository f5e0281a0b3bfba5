"""The flow engine: tasks that wait for each other and share links max-min fairly.

A task waits for its predecessors, then for a delay (a latency, a compute span), then moves bytes over a path. Rates are
max-min fair by weight within a traffic class; class 0 is served before class 1, and so on. Links may change their rate
at given moments and tasks may change their path. All times are exact for this model; it has no queues and no packets.

    >>> paths = Paths.of([[0], [0]])
    >>> course = run(np.array([10.0]), Tasks.of(paths, size_bytes=np.array([10.0, 30.0])))
    >>> course.end_s.tolist()
    [2.0, 4.0]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline import _native
from syncline.errors import SimulationError

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Starts = NDArray[np.int64]

NO_FLOATS: Floats = np.empty(0)
NO_INTS: Ints = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Paths:
    """Rows of links: path p crosses `link[start[p]:start[p + 1]]`, with a share of its flow's rate (1 if empty)."""

    start: Starts
    link: Ints
    share: Floats = field(default_factory=lambda: NO_FLOATS)

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | NDArray[np.integer]]) -> Paths:
        """Return paths over these links, crossing each in full."""
        kept = [list(row) for row in rows]
        start = np.zeros(len(kept) + 1, dtype=np.int64)
        start[1:] = np.cumsum([len(row) for row in kept])
        return cls(start, np.fromiter(chain.from_iterable(kept), dtype=np.int32))

    def __len__(self) -> int:
        return len(self.start) - 1

    def row(self, path: int) -> Ints:
        """Return the links of one path."""
        return self.link[self.start[path] : self.start[path + 1]]

    def rows(self) -> list[list[int]]:
        """Return the links of every path."""
        return [row.tolist() for row in np.split(self.link, self.start[1:-1])]

    def shares(self) -> Floats:
        """Return the share of every crossing."""
        return self.share if len(self.share) else np.ones(len(self.link))

    def row_of_crossing(self) -> Starts:
        """Return the path each crossing belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def take(self, rows: NDArray[np.integer]) -> Paths:
        """Return the chosen paths, in that order."""
        counts = np.diff(self.start)[rows]
        start = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(self.start[rows] - start[:-1], counts) + np.arange(start[-1])
        return Paths(start, self.link[at], self.share[at] if len(self.share) else NO_FLOATS)

    def then(self, other: Paths) -> Paths:
        """Return these paths followed by the others."""
        share = np.concatenate((self.shares(), other.shares())) if len(self.share) or len(other.share) else NO_FLOATS
        start = np.concatenate((self.start, other.start[1:] + self.start[-1]))
        return Paths(start, np.concatenate((self.link, other.link)), share)


@dataclass(frozen=True, eq=False)
class LinkChanges:
    """Link `link[i]` has the rate `rate_Bps[i]` from `time_s[i]` on; times never fall."""

    time_s: Floats = field(default_factory=lambda: NO_FLOATS)
    link: Ints = field(default_factory=lambda: NO_INTS)
    rate_Bps: Floats = field(default_factory=lambda: NO_FLOATS)


@dataclass(frozen=True, eq=False)
class Reroutes:
    """Task `task[i]` takes path `path[i]` from `time_s[i]` on; times never fall."""

    time_s: Floats = field(default_factory=lambda: NO_FLOATS)
    task: Ints = field(default_factory=lambda: NO_INTS)
    path: Ints = field(default_factory=lambda: NO_INTS)


@dataclass(frozen=True, eq=False)
class Tasks:
    """Columns of tasks. Task i may take paths `first_path[i] .. + num_paths[i] - 1`; of several, the least loaded.

    `wait_for[wait_start[i]:wait_start[i + 1]]` are the tasks that must end before task i begins. `tenant` says whose a
    task is (-1: nobody's; empty: there are no tenants).
    """

    paths: Paths
    first_path: Ints
    num_paths: Ints
    size_bytes: Floats
    delay_s: Floats
    start_s: Floats
    weight: Floats
    cap_Bps: Floats
    priority: NDArray[np.uint8]
    wait_start: Starts
    wait_for: Ints
    tenant: Ints = field(default_factory=lambda: NO_INTS)

    @classmethod
    def of(
        cls,
        paths: Paths,
        *,
        size_bytes: ArrayLike,
        first_path: ArrayLike | None = None,
        num_paths: ArrayLike | None = None,
        delay_s: ArrayLike = 0.0,
        start_s: ArrayLike = 0.0,
        weight: ArrayLike = 1.0,
        cap_Bps: ArrayLike = np.inf,
        priority: ArrayLike = 0,
        wait_for: Sequence[Sequence[int]] | Paths = (),
        tenant: ArrayLike | None = None,
    ) -> Tasks:
        """Return tasks, one value standing for a whole column; by default task i takes path i and waits for nobody.

        Rows of `wait_for` that were laid out before may be given as `Paths`.
        """
        size = np.ascontiguousarray(size_bytes, dtype=np.float64)
        num = len(size)

        def column(values: ArrayLike, dtype: type[np.generic]) -> NDArray[np.generic]:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype=dtype), (num,)))

        waits = wait_for if isinstance(wait_for, Paths) else Paths.of(wait_for or [()] * num)
        return cls(
            paths,
            column(np.arange(num) if first_path is None else first_path, np.int32),  # type: ignore[arg-type]
            column(1 if num_paths is None else num_paths, np.int32),  # type: ignore[arg-type]
            size,
            column(delay_s, np.float64),  # type: ignore[arg-type]
            column(start_s, np.float64),  # type: ignore[arg-type]
            column(weight, np.float64),  # type: ignore[arg-type]
            column(cap_Bps, np.float64),  # type: ignore[arg-type]
            column(priority, np.uint8),  # type: ignore[arg-type]
            waits.start,
            waits.link,
            NO_INTS if tenant is None else column(tenant, np.int32),  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        return len(self.size_bytes)


@dataclass(frozen=True, eq=False)
class Course:
    """What came of the tasks: when each began and ended, the path it took last, and what every link carried."""

    begin_s: Floats
    end_s: Floats
    path: Ints
    bottleneck: Ints
    link_bytes: Floats
    num_solves: int
    sample_link: Ints
    sample_begin_s: Floats
    sample_end_s: Floats
    sample_Bps: Floats

    @property
    def makespan_s(self) -> float:
        """When the last task ends."""
        return float(self.end_s.max(initial=0.0))


def run(
    capacity_Bps: ArrayLike,
    tasks: Tasks,
    *,
    changes: LinkChanges | None = None,
    reroutes: Reroutes | None = None,
    guarantee: ArrayLike = (),
    burst_bytes: ArrayLike = (),
    record: bool = False,
) -> Course:
    """Return the course of the tasks over links of these rates; `record` keeps every link's load over time.

    `guarantee` is, per tenant, the part of every link that is its own when it wants it, whatever the weights and
    classes of the others; what it does not use goes to the others. `burst_bytes` is, per link, what it lets through at
    once when it has been idle (a token bucket, filled by what the link does not use); a starting flow takes it.

    Raises:
        SimulationError: the columns do not fit each other, or some task can never end.
    """
    change, reroute = changes or LinkChanges(), reroutes or Reroutes()
    try:
        answer = _native.run_flows(
            np.ascontiguousarray(capacity_Bps, dtype=np.float64),
            tasks.paths.start,
            tasks.paths.link,
            tasks.paths.share,
            tasks.first_path,
            tasks.num_paths,
            tasks.size_bytes,
            tasks.delay_s,
            tasks.start_s,
            tasks.weight,
            tasks.cap_Bps,
            tasks.priority,
            tasks.wait_start,
            tasks.wait_for,
            change.time_s,
            change.link,
            change.rate_Bps,
            reroute.time_s,
            reroute.task,
            reroute.path,
            tasks.tenant,
            np.ascontiguousarray(guarantee, dtype=np.float64),
            np.ascontiguousarray(burst_bytes, dtype=np.float64),
            record,
        )
    except ValueError as error:
        raise SimulationError(f"cannot run these tasks: {error}.") from error
    except RuntimeError as error:
        raise SimulationError(f"the simulation cannot end: {error}.") from error
    return Course(*answer)
