"""Whose gradient it was, where that of a team's member has been summed over several ranks before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

POLL_S = 0.02


class GradientSources:
    """The ranks behind each member of a team; those whose own gradient was not finite note it in the run's store.

    On a device a rank knows of its own gradient no earlier than others of the sum: those wait `wait_s` for its note.
    """

    def __init__(self, ranks: Sequence[Sequence[int]], own: int, store: Any, wait_s: float = 0.0) -> None:
        self._ranks, self._own, self._store, self._wait_s = ranks, own, store, wait_s
        self._unread: list[tuple[int, torch.Tensor]] = []

    def looked(self, step: int, finite: bool | torch.Tensor) -> None:
        """Take whether this rank's own gradient is finite, before it is summed with others; on a device for later."""
        if isinstance(finite, torch.Tensor):
            self._unread.append((step, finite))
        elif not finite:
            self._note(step)

    def settle(self) -> None:
        """Read what lies on a device, once the sum has come and nobody waits for the device any more."""
        for step, finite in self._unread:
            if not finite:
                self._note(step)
        self._unread.clear()

    def of(self, member: int, step: int) -> str:
        """Return the ranks behind a member that noted it; where none did, all of which it may have been one."""
        until_s = time.monotonic() + self._wait_s
        while not (noted := self._noted(member, step)) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        return " and ".join(map(str, noted)) or " or ".join(map(str, self._ranks[member]))

    def _note(self, step: int) -> None:
        self._store.set(f"{step}/{self._own}", "not finite")

    def _noted(self, member: int, step: int) -> list[int]:
        return [rank for rank in self._ranks[member] if self._store.check([f"{step}/{rank}"])]
