"""Which process does the work of each vertex of a schedule: ranks are their own, helpers must sit somewhere.

A helper with a home (a scratch buffer, a server that lives with a worker) sits with that rank. One without (a server or
a reducing switch of its own) gets a spare process when the group has more processes than the program has ranks, and
otherwise sits with a rank, in turn: the result is the same, the traffic through that rank's NIC is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.errors import ExecutionError
from syncline.schedule.schedule import NO_HOME, Schedule


def seats(schedule: Schedule, num_processes: int) -> NDArray[np.int64]:
    """Return the process of each vertex."""
    ranks = schedule.num_ranks
    if num_processes < ranks:
        raise ExecutionError(f"{schedule.name} is for {ranks} ranks, but the group has {num_processes}.",
                             hint="Start more processes, or lower the schedule for fewer ranks.")  # fmt: skip
    seat = schedule.device_rank().copy()
    loose = np.flatnonzero(seat == NO_HOME)
    spare = num_processes >= ranks + len(loose)
    seat[loose] = ranks + np.arange(len(loose)) if spare else np.arange(len(loose)) % ranks
    return seat


def sits_with_ranks(schedule: Schedule, num_processes: int) -> bool:
    """Whether helpers that are devices of their own had to be seated with ranks: then their traffic is not modelled."""
    loose = int((schedule.device_rank() == NO_HOME).sum())
    return loose > 0 and num_processes < schedule.num_ranks + loose
