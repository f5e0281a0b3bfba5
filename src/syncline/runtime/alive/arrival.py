"""Ranks that must come together, counted in the job's store: who is missing is named, not waited for in silence."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from syncline.errors import LostRankError
from syncline.runtime.wire.team import name_of

WARN_S = 10.0
"""How long ranks wait before they say for whom, and again each time that has lasted twice as long."""
SHORTEST_S, LONGEST_S = 0.001, 0.25
_calls: Counter[str] = Counter()

log = logging.getLogger("syncline.watchdog")


def host_name() -> str:
    """Return what people call this host."""
    return os.environ.get("SYNCLINE_LAB_HOST") or socket.gethostname()


class Arrival:
    """One meeting of some ranks: each of them makes one under the same name, as often as the others."""

    def __init__(self, purpose: str, ranks: Sequence[int]) -> None:
        name = f"{purpose}/{name_of(ranks)}"
        _calls[name] += 1
        self._ranks = ranks
        self._store: Any = distributed_c10d.PrefixStore(
            f"syncline/arrival/{name}/{_calls[name]}", distributed_c10d._get_default_store()
        )
        self._store.set(f"at/{dist.get_rank()}", host_name())
        self._store.add("count", 1)

    @property
    def is_complete(self) -> bool:
        """Whether all have come."""
        return int(self._store.add("count", 0)) >= len(self._ranks)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the others; whether they came. Who is missing is logged meanwhile."""
        began_s, pause_s, warned_s = time.monotonic(), SHORTEST_S, WARN_S
        while not self.is_complete:
            passed_s = time.monotonic() - began_s
            if passed_s > timeout_s:
                return False
            if passed_s > warned_s:
                warned_s = 2 * passed_s
                log.warning("%s Waiting, up to %.0f s in all.", self.sentence(), timeout_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)
        return True

    @property
    def missing(self) -> list[int]:
        """Who has not come."""
        return [rank for rank in self._ranks if not self._store.check([f"at/{rank}"])]

    def sentence(self) -> str:
        """Return who has not called, and who has."""
        missing = self.missing
        plural = "s" if len(missing) > 1 else ""
        verb = "have" if len(missing) > 1 else "has"
        came = f"rank {dist.get_rank()} on {host_name()}"
        return f"rank{plural} {', '.join(map(str, missing))} {verb} not called synchronize, and {came} has."

    def tally(self, value: str, wait_s: float) -> dict[str, list[int]] | None:
        """Return which ranks brought which value, where they differ; None: all are alike, or not all came in time."""
        self._store.set(f"value/{dist.get_rank()}", value)
        self._store.add(f"same/{value}", 1)
        self._store.add("count", 1)  # each counts twice: it has come, and its value is there
        end_s = time.monotonic() + wait_s
        while int(self._store.add("count", 0)) < 2 * len(self._ranks):
            if time.monotonic() > end_s:
                return None
            time.sleep(LONGEST_S / 10)
        if int(self._store.add(f"same/{value}", 0)) == len(self._ranks):
            return None
        found: dict[str, list[int]] = {}
        for rank in self._ranks:
            found.setdefault(self._store.get(f"value/{rank}").decode(), []).append(rank)
        return found


def meet_to_start(group: dist.ProcessGroup, timeout_s: float) -> None:
    """Wait until every rank of a group has called `synchronize`: a rank that has not is named."""
    arrival = Arrival("start", dist.get_process_group_ranks(group))
    if not arrival.wait(timeout_s):
        error = LostRankError(
            arrival.sentence(), hint="Every rank calls synchronize() on its model, not rank 0 alone (`if rank == 0:`)."
        )
        error.rank, error.phase = next(iter(arrival.missing), None), "start"
        raise error
