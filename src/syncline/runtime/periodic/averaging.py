"""Averages in the background for any method: agree once, then launch flat buffers and let them land.

A launch goes through the handle's ordered threads and its compressed exchange, as buckets of gradients do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from syncline.runtime.alive.agreement import agree
from syncline.runtime.alive.replicas import compare, fingerprints
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout, Order
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.synchronizer import Synchronizer
from syncline.runtime.wire.links import GroupLinks, team_device
from syncline.runtime.wire.team import Team, agreed_name


class Flight:
    """One buffer under way: launched at a step, landed when its average is there."""

    def __init__(self, step: int, landed: bool = False, arrived: Callable[[], None] = lambda: None) -> None:
        self.step = step
        self._arrived = arrived
        self._event = threading.Event()
        self._failure: BaseException | None = None
        if landed:
            self._event.set()

    @property
    def landed(self) -> bool:
        """Whether the average is there, or a failure."""
        return self._event.is_set()

    @property
    def is_whole(self) -> bool:
        """Whether the average is there."""
        return self.landed and self._failure is None

    def order(self, index: int, buffer: torch.Tensor, layout: Layout, record: Step, codec: str = "") -> Order:
        """Return the order with which this flight begins; its average is whole, on a device too, when it has landed."""
        _wait_for_device(buffer)

        def done(failure: BaseException | None) -> None:
            self._arrived()
            if failure is None:
                _wait_for_device(buffer)
            self._failure = failure
            self._event.set()

        return Order(index, buffer, layout, record, done, last=True, codec=codec)

    def wait(self) -> float:
        """Wait until it has landed, raise what went wrong, and return the seconds it took."""
        began = time.perf_counter()
        self._event.wait()
        if self._failure is not None:
            raise self._failure
        return time.perf_counter() - began


class Averaging:
    """Averages of flat float32 buffers over a target's ranks, in order, in the background."""

    def __init__(self, target: Target, settings: Settings, meaning: Mapping[str, Any]) -> None:
        self._settings, self._label = settings, str(meaning["method"])
        self.wire_bytes = 0
        """What this rank has sent at the outermost level, of all that has landed."""
        self._connect(target, meaning)

    def _connect(self, target: Target, meaning: Mapping[str, Any]) -> None:
        agree_first(target, self._settings, meaning)
        self._start(GroupLinks(target.group, self._settings, target.device))

    def _start(self, links: GroupLinks) -> None:
        self.synchronizer = Synchronizer(self._settings, links, self._label)
        self.rank, self.num_ranks = links.rank, links.num_ranks
        self.team = links.team

    def launch(self, index: int, buffer: torch.Tensor, layout: Layout, step: int, codec: str = "") -> Flight:
        """Begin to average a buffer in place; every rank launches the same ones in the same order."""
        record = self._record()
        flight = Flight(step, arrived=lambda: self._count(record))
        self.synchronizer.average(flight.order(index, buffer, layout, record, codec))
        return flight

    def _count(self, record: Step) -> None:
        self.wire_bytes += record.wire_bytes

    def _record(self) -> Step:
        """Return the step that a launch belongs to: one of its own."""
        return self.synchronizer.open_step()

    def compare(self, target: Target) -> None:
        """Raise on every rank if they do not start from the same weights: averages of moves would keep them apart."""
        compare(fingerprints(target.values()), list(target.names), self.team, 0)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.team.all_reduce(torch.zeros(1, device=self.team.device))

    def state_dict(self) -> dict[str, object]:
        """Return this rank's residuals and factors; nothing may be under way."""
        return self.synchronizer.state_dict(local=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over this rank's residuals and factors; nothing may be under way."""
        self.synchronizer.load_state_dict(state)

    def close(self) -> None:
        """Finish what is under way and end the threads."""
        self.synchronizer.close()


def _wait_for_device(buffer: torch.Tensor) -> None:
    """Wait for what this thread has given to its stream."""
    if buffer.is_cuda:
        torch.cuda.current_stream(buffer.device).synchronize()


def agree_first(target: Target, settings: Settings, meaning: Mapping[str, Any]) -> None:
    """Raise on every rank where two mean different things; before groups are made, which would wait for each other."""
    device = team_device(target.group, target.device)
    name = agreed_name(target.group, device)
    rank, size = dist.get_rank(target.group), dist.get_world_size(target.group)
    team = Team(f"{name}/agreement", range(size), rank, device, settings.timeout_s)
    agree({**settings.agreed(), **meaning, "parameters": target.described()}, team)
