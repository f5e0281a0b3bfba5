"""Whose gradient it was, where that of a team's member has been summed over several ranks before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class GradientSources:
    """The ranks behind each member of a team; those whose own gradient was not finite note it in the run's store."""

    def __init__(self, ranks: Sequence[Sequence[int]], own: int, store: Any) -> None:
        self._ranks, self._own, self._store = ranks, own, store

    def note(self, step: int) -> None:
        """Say that this rank's own gradient is not finite, before it is summed with others."""
        self._store.set(f"{step}/{self._own}", "not finite")

    def of(self, member: int, step: int) -> str:
        """Return the ranks behind a member that noted it; where none did, all of which it may have been one."""
        noted = [rank for rank in self._ranks[member] if self._store.check([f"{step}/{rank}"])]
        return " and ".join(map(str, noted)) or " or ".join(map(str, self._ranks[member]))
