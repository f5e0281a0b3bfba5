"""Faults put into the messages of an exchange, on real connections between threads of this process.

run_world(Fault("corrupt", step=1, rank=2, message=3, seed=7), codec="int8") -> Outcome

A world is a few ranks that average some buckets for a few steps. A fault is *silent* when a rank ends with other
numbers than a world without faults has, or when one rank raises and another does not.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from syncline.runtime.sync.bucket import Layout, Order
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.synchronizer import Synchronizer
from syncline.runtime.wire.links import TeamLinks
from syncline.runtime.wire.message import HEADER_BYTES, TRAILER_BYTES, Slot
from syncline.runtime.wire.team import Team

KINDS = ("drop", "truncate", "swap", "duplicate", "corrupt", "wrong codec", "wrong step", "nan on the wire",
         "nan in a gradient", "short stall", "long stall")  # fmt: skip
NUM_RANKS, NUM_STEPS, SIZES = 3, 4, (3000, 5000)
TIMEOUT_S, WATCH_S, SHORT_S, LONG_S = 3.0, 3.0, 0.3, 4.0


@dataclass(frozen=True)
class MessageFault:
    """One thing that goes wrong: in which step, on whose side, with which of the messages it sends in that step."""

    kind: str
    step: int = 1
    rank: int = 0
    message: int = 0
    seed: int = 0


@dataclass
class InjectionOutcome:
    """What each rank ended with: the error it raised ("": none), and the averages it got."""

    fault: MessageFault
    errors: list[str] = field(default_factory=lambda: [""] * NUM_RANKS)
    results: list[list[torch.Tensor]] = field(default_factory=lambda: [[] for _ in range(NUM_RANKS)])
    struck: bool = False

    def is_silent(self, expected: list[torch.Tensor]) -> bool:
        """Whether a wrong number stands as right, or a rank has neither the error that others have nor an end."""
        wrong = any(not torch.equal(got, due) for row in self.results for got, due in zip(row, expected, strict=False))
        raised = sum(bool(error) for error in self.errors)
        hangs = any(not e and len(row) < len(expected) for e, row in zip(self.errors, self.results, strict=True))
        return wrong or hangs or 0 < raised < NUM_RANKS

    @property
    def is_raised(self) -> bool:
        """Whether every rank raised."""
        return all(self.errors)


class _Sent:
    """A message that is not under way."""

    def wait(self) -> None:
        """Return at once."""


class FaultyTeam(Team):
    """A team of threads whose sends go wrong once."""

    def __init__(self, store: Any, rank: int, fault: MessageFault | None, outcome: InjectionOutcome) -> None:
        self.rank, self.size, self.device = rank, NUM_RANKS, torch.device("cpu")
        self.members, self.store = tuple(range(NUM_RANKS)), store
        self.names = self.members
        self._backend = dist.ProcessGroupGloo(store, rank, NUM_RANKS, datetime.timedelta(seconds=TIMEOUT_S))
        self.step = -1
        self._fault = fault if fault is not None and fault.rank == rank else None
        self._outcome = outcome
        self._count: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []
        self._held: tuple[torch.Tensor, int, int] | None = None
        self._lock = threading.Lock()
        self._random = random.Random(fault.seed if fault else 0)

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        """Send, or do what the fault says."""
        with self._lock:
            if self._held is not None and len(self._held[0]) == len(tensor):
                return self._swap(tensor, peer, tag)
            fault, number = self._fault, self._count.get(self.step, 0)
            self._count[self.step] = number + 1
            if fault is None or fault.step != self.step or fault.message != number:
                return super().send(tensor, peer, tag)
            self._outcome.struck = True
        return self._strike(fault.kind, tensor, peer, tag)

    def _strike(self, kind: str, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        changed = tensor.clone()
        self._kept.append(changed)
        if kind == "drop":
            return _Sent()
        if kind == "swap":
            self._held = (changed, peer, tag)
            return _Sent()
        if kind == "duplicate":
            super().send(changed, peer, tag)
        elif kind == "truncate":
            changed = changed[: self._random.randrange(1, len(changed))]
        elif kind == "corrupt":
            for _ in range(self._random.choice((1, 1, 1, 2, 16))):
                changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        elif kind == "nan on the wire":
            words = (len(changed) - HEADER_BYTES - TRAILER_BYTES) // 4
            place = HEADER_BYTES + 4 * self._random.randrange(max(1, words))
            changed[place : place + 4] = torch.tensor([0, 0, 0xC0, 0x7F], dtype=torch.uint8)
        elif kind in ("wrong codec", "wrong step"):
            _restamp(changed, 1 if kind == "wrong codec" else 4)
        elif kind in ("short stall", "long stall"):
            time.sleep(SHORT_S if kind == "short stall" else LONG_S)
        return super().send(changed, peer, tag)

    def _swap(self, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        """Let this message and the one held back change places."""
        assert self._held is not None
        held, held_peer, held_tag = self._held
        self._held = None
        own = tensor.clone()
        self._kept.append(own)
        super().send(own, held_peer, held_tag)
        return super().send(held, peer, tag)


def _restamp(message: torch.Tensor, word: int) -> None:
    """Change a word of the header as a rank would that means it: the checksum fits."""
    slot = Slot(message, len(message) - HEADER_BYTES - TRAILER_BYTES)
    slot.change(word, 1)


def run_world(fault: MessageFault | None, codec: str = "int8") -> InjectionOutcome:
    """Return what became of each rank of a world with this fault."""
    outcome = InjectionOutcome(fault or MessageFault("none"))
    stores: Any = dist
    store = stores.HashStore()
    threads = [
        threading.Thread(target=_rank, args=(rank, store, fault, codec, outcome), daemon=True)
        for rank in range(NUM_RANKS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    return outcome


@cache
def expected(codec: str) -> list[torch.Tensor]:
    """Return the averages of a world without faults: every bucket of every step."""
    outcome = run_world(None, codec)
    first = outcome.results[0]
    assert outcome.errors == [""] * NUM_RANKS and len(first) == NUM_STEPS * len(SIZES), outcome.errors
    assert all(torch.equal(a, b) for row in outcome.results for a, b in zip(row, first, strict=True))
    return first


def gradient(rank: int, step: int, index: int) -> torch.Tensor:
    """Return whole numbers, whose sums are exact in float32."""
    random_numbers = torch.Generator().manual_seed(1000 * step + 10 * index + rank)
    return torch.randint(-99, 100, (SIZES[index],), generator=random_numbers).float()


def _rank(rank: int, store: Any, fault: MessageFault | None, codec: str, outcome: InjectionOutcome) -> None:
    handle = None
    try:
        team = FaultyTeam(store, rank, fault, outcome)
        settings = Settings(codec=codec, warmup=0, piece_bytes=4096, timeout_s=TIMEOUT_S, watch_s=WATCH_S, wait_s=0.0)
        handle = Synchronizer(settings, TeamLinks(team, team.device), f"world-{rank}")
        for number in range(NUM_STEPS):
            team.step = number
            outcome.results[rank] += _train(handle, rank, number, fault, outcome)
    except Exception as error:  # whatever a rank raises is heard
        outcome.errors[rank] = f"{type(error).__name__}: {error}"
    finally:
        if handle is not None:
            handle.close()


def _train(
    handle: Synchronizer, rank: int, number: int, fault: MessageFault | None, outcome: InjectionOutcome
) -> list[torch.Tensor]:
    handle.begin()
    step = handle.open_step()
    buffers = [gradient(rank, number, index) for index in range(len(SIZES))]
    if fault is not None and (fault.kind, fault.step, fault.rank) == ("nan in a gradient", number, rank):
        buffers[fault.message % len(SIZES)][fault.seed % min(SIZES)] = float("nan")
        outcome.struck = True
    for index, buffer in enumerate(buffers):
        layout = Layout((f"p{index}",), ((SIZES[index],),))
        handle.average(Order(index, buffer, layout, step, lambda failure: None, index == len(SIZES) - 1))
    handle.settle(step)
    return buffers
