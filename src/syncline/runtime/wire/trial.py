"""Which transport is faster between these ranks: each carries the same exchange a few times, and all ranks compare.

found = fastest({"collectives": open_nccl, "native": open_native}, values, "int8", team)
found.name, found.wire, str(found)
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from syncline.codec.low_rank import LowRank
from syncline.codec.names import scheme
from syncline.codec.scheme import Scheme
from syncline.describe.units import show_size, show_time
from syncline.errors import SynchronizationError
from syncline.program.stages import DENSE
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.sync.exchange import Exchange, ExchangePlace
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.native_wire import NativeWire
from syncline.runtime.wire.team import Team
from syncline.runtime.wire.wire import Wire

ELEMENTS = 1 << 21
"""Of the exchange that is tried: as many as 8 MiB of float32 hold."""
ROUNDS = 5
CLEARLY = 0.9
"""The first is the backend's own; another must take less than so much of its time."""


@dataclass(frozen=True)
class TransportChoice:
    """The transport that was chosen, its wire, and what an exchange took on each; inf: it could not be opened."""

    name: str
    wire: Wire
    times_s: Mapping[str, float]
    size_bytes: int

    def __str__(self) -> str:
        times = {name: show_time(took) if took < math.inf else "for ever" for name, took in self.times_s.items()}
        listed = ", ".join(f"{took} by {name}" for name, took in times.items())
        return f"{self.name} carries it: {show_size(self.size_bytes)} took {listed}"


def fastest(openers: Mapping[str, Callable[[], Wire]], values: torch.Tensor, codec: str, team: Team) -> TransportChoice:
    """Open each wire, carry the values over it a few times, and keep the fastest; every rank of the team calls it.

    A wire that any rank cannot open is nobody's. The others are closed.
    """
    wires: dict[str, Wire] = {}
    times: dict[str, float] = {}
    for name, open_wire in openers.items():
        with contextlib.suppress(SynchronizationError):
            wires[name] = open_wire()
        there = exchange_json({"open": name in wires}, team)
        times[name] = exchange_s(wires[name], values, _scheme(codec)) if all(row["open"] for row in there) else math.inf
    rows = exchange_json({name: None if math.isinf(took) else took for name, took in times.items()}, team)
    slowest = {name: max(math.inf if row[name] is None else float(row[name]) for row in rows) for name in times}
    chosen = choose(slowest)
    for name, wire in wires.items():
        if name != chosen and isinstance(wire, NativeWire):
            wire.close()
    if math.isinf(slowest[chosen]):
        raise SynchronizationError(
            f"no transport reaches all {team.size} ranks: {', '.join(openers)} were tried.",
            hint="Let TCP through between the hosts, or name other interfaces in SYNCLINE_RAILS.",
        )
    return TransportChoice(chosen, wires[chosen], slowest, values.nbytes)


def choose(times_s: Mapping[str, float]) -> str:
    """Return the first, unless another is clearly faster."""
    first, *others = times_s
    best = min(others, key=times_s.__getitem__, default=first)
    return best if times_s[best] < CLEARLY * times_s[first] else first


def exchange_s(wire: Wire, values: torch.Tensor, known: Scheme) -> float:
    """Return the shortest time this rank saw for an exchange of these values."""
    exchange = Exchange(values, None, known, wire, ExchangePlace(0, 0, 0, wire.rank, lambda shard: 0))
    times = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        exchange.send(Step(number, wire.rank, known.name, 0.0))
        exchange.reduce()
        exchange.collect()
        exchange.finish()
        if values.is_cuda:
            torch.cuda.current_stream(values.device).synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _scheme(codec: str) -> Scheme:
    """Return what is tried for a codec: low rank exchanges its factors as they are."""
    known = scheme(codec)
    return scheme(DENSE) if isinstance(known, LowRank) else known
