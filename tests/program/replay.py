"""Run a program on NumPy buffers in this process: the proof that lowering kept the meaning, at small sizes.

Every rank is a little machine that follows its own list of rounds; messages meet by pair, strand and order alone, and
ranks take turns at random. So what is proved here is the program as it is executed, not the schedule it came from.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.errors import ProgramError
from syncline.program.program import Program, ProgramStep, RankRound

Buffer = NDArray[Any]
_Queue = dict[tuple[int, int, int], deque[Buffer]]


def replay(program: Program, buffers: Mapping[int, Buffer], size_bytes: int, *, seed: int = 0) -> dict[int, Buffer]:
    """Return the buffers after the program; one array element of any type stands for one byte. Helpers start at zero.

    Sums are made in the order of the program's messages, so that floats come out as an executor must make them.

    Raises:
        ProgramError: ranks wait for messages that never come.
    """
    state = {rank: np.array(buffer) for rank, buffer in buffers.items()}
    kind = np.result_type(*state.values()) if state else np.dtype(np.int64)
    rng = np.random.default_rng(seed)
    for number, step in enumerate(program.steps):
        if not isinstance(step, ProgramStep):
            raise ProgramError(f"{step.name} is left to its library and cannot be replayed.")
        width = step.collective.total_bytes(size_bytes)
        for vertex in range(step.proved.schedule.num_ranks):
            state.setdefault(vertex, np.zeros(width, dtype=kind))
        for vertex in range(step.proved.schedule.num_ranks, step.proved.schedule.num_vertices):
            state[vertex] = np.zeros(width, dtype=kind)
        _run_step(program, number, step, size_bytes, state, rng)
    return state


def _run_step(
    program: Program,
    number: int,
    step: ProgramStep,
    size_bytes: int,
    state: dict[int, Buffer],
    rng: np.random.Generator,
) -> None:
    single = Program(program.name, (step,), program.placement)
    waiting: dict[tuple[int, int], deque[RankRound]] = defaultdict(deque)
    for vertex in range(step.proved.schedule.num_vertices):
        for entry in single.rank_rounds(vertex, size_bytes):
            waiting[vertex, entry.strand].append(entry)
    wires: _Queue = defaultdict(deque)
    posted: set[tuple[int, int]] = set()
    while any(waiting.values()):
        moved = False
        lanes = [lane for lane, rounds in waiting.items() if rounds]
        for k in rng.permutation(len(lanes)):
            moved |= _advance(lanes[k], waiting[lanes[k]], wires, posted, state)
        if not moved:
            (vertex, strand), rounds = next((lane, rounds) for lane, rounds in waiting.items() if rounds)
            raise ProgramError(f"rank {vertex} waits forever in strand {strand}, round {rounds[0].round}.",
                               where=f"step {number}")  # fmt: skip


def _advance(
    lane: tuple[int, int],
    rounds: deque[RankRound],
    wires: _Queue,
    posted: set[tuple[int, int]],
    state: dict[int, Buffer],
) -> bool:
    """Post the sends of the lane's round, or finish the round if all it waits for has come."""
    vertex, strand = lane
    entry, buffer = rounds[0], state[vertex]
    if lane not in posted:
        for peer, offset, size in zip(entry.sends.peer, entry.sends.offset_bytes, entry.sends.size_bytes, strict=True):
            wires[vertex, int(peer), strand].append(buffer[offset : offset + size].copy())
        posted.add(lane)
        return True
    coming = entry.receives
    need: dict[int, int] = defaultdict(int)
    for peer in coming.peer:
        need[int(peer)] += 1
    if any(len(wires[peer, vertex, strand]) < count for peer, count in need.items()):
        return False
    for i in range(len(coming)):
        data = wires[int(coming.peer[i]), vertex, strand].popleft()
        if len(data) != coming.size_bytes[i]:
            raise ProgramError(f"rank {vertex} got {len(data)} bytes where it expects {coming.size_bytes[i]}.")
        place = buffer[coming.offset_bytes[i] : coming.offset_bytes[i] + len(data)]
        place[:] = place + data if coming.reduce[i] else data
    rounds.popleft()
    posted.discard(lane)
    return True
