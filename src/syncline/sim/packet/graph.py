"""A graph of waits, delays and exchanges as a load of the packet engine: what steps and traces are there.

An exchange is messages between devices that start together when everything it waits for has ended and its delay has
passed; it ends when the last of them has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.sim.packet.network import Floats, Longs
from syncline.sim.packet.posting import PacketJob, Posting, RoundTransfers
from syncline.sim.packet.traffic import Traffic

Flows = tuple[Longs, Longs, Floats]
"""Who sends to whom, and how much of an exchange's bytes."""


@dataclass(frozen=True, eq=False)
class PacketGraph:
    """Tasks in an order in which none waits for a later one.

    Task i waits for `waits[i]`, then `delay_s[i]`, then sends `size_bytes[i]` times the flows `path[i]` (-1: nothing).
    `longer` and `longer_inside` multiply what crosses the network, and what stays inside a host.
    """

    delay_s: Floats
    size_bytes: Floats
    path: Longs
    waits: Sequence[Sequence[int]]
    flows: Sequence[Flows]
    name: str = "graph"
    longer: float = 1.0
    longer_inside: float = 1.0
    traffic_class: int = 0
    start_s: float = 0.0


Load = PacketJob | PacketGraph | Traffic
"""What a run is given: a program, a graph of exchanges, or raw messages."""


def add_graph(into: Posting, graph: PacketGraph, number: int) -> Longs:
    """Append a graph; returns for each of its tasks the one at whose end it has ended."""
    ways = [_Way.of(into, graph, flows) for flows in graph.flows]
    done = np.empty(len(graph.path), np.int64)
    delay = np.round(graph.delay_s * 1e12).astype(np.int64)
    one = np.ones(1, np.int64)
    for task, (path, waits) in enumerate(zip(graph.path.tolist(), graph.waits, strict=True)):
        after = done[np.asarray(waits, np.int64)]
        gate = into.tasks(-1, 0, int(delay[task]), (one * len(after), after))
        done[task] = gate
        if path < 0 or graph.size_bytes[task] <= 0 or not len(ways[path].over):
            continue
        way = ways[path]
        size = np.maximum(np.round(way.weight * graph.size_bytes[task]), 1).astype(np.int64)
        count = len(way.over)
        behind = (np.ones(count, np.int64), np.full(count, gate))
        first, parts = into.post(way.over, size, way.delay_ps, behind, pairs=way.parts)
        into.blocks.append(RoundTransfers(number, 0, task, first, parts, way.src, way.dst, size))
        sent = first + np.arange(parts * count)
        done[task] = into.tasks(-1, 0, 0, (one * len(sent), sent))
    return done


@dataclass(frozen=True, eq=False)
class _Way:
    """The connections of one set of flows, and the bytes each carries of one byte of an exchange."""

    over: Longs
    delay_ps: Longs
    weight: Floats
    src: Longs
    dst: Longs
    parts: int = 1

    @classmethod
    def of(cls, into: Posting, graph: PacketGraph, flows: Flows) -> _Way:
        src, dst, weight = flows
        apart: NDArray[np.bool_] = (src != dst) & (weight > 0)
        width = len(into.network.fabric.devices)
        pair, at = np.unique(src[apart].astype(np.int64) * width + dst[apart], return_inverse=True)
        total = np.bincount(at.ravel(), weights=weight[apart], minlength=len(pair)).astype(np.float64)
        src, dst = pair // width, pair % width
        if not len(pair):
            none = np.zeros(0, np.int64)
            return cls(none, none, np.zeros(0), none, none)
        wires = into.plain.wire(src, dst, np.zeros(len(pair), np.int64))
        ways = into.connect(wires.paths, pair, graph.traffic_class)
        longer = np.where(ways.over >= 0, graph.longer, graph.longer_inside)
        return cls(ways.over, ways.delay_ps, total * longer, src, dst, ways.parts)
