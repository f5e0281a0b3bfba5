"""Recursive doubling and recursive halving-doubling: partners at distances 1, 2, 4, ...

Cost laws (n ranks, p the largest power of two up to n):
- doubling all-reduce: log2 p rounds in which everyone sends the whole buffer: fewest rounds, most bytes;
- halving-doubling all-reduce: 2 log2 p rounds, 2(p-1)/p of the buffer: few rounds *and* the fewest bytes;
- reduce-scatter (halving), all-gather (doubling): log2 n rounds, (n-1)/n.
When n is no power of two, ranks p and up first hand their data to a partner and get their result at the end: two
rounds more, and the partner sends up to one buffer more.
"""

from __future__ import annotations

import numpy as np

from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Round, moves_round

KINDS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)


def core_size(num_ranks: int) -> int:
    """Return the largest power of two that is not larger."""
    return 1 << (num_ranks.bit_length() - 1)


def doubling_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return recursive doubling."""
    if kind is not Kind.ALL_REDUCE:  # its two halves are those of halving-doubling
        return halving_kernel(kind, num_ranks)
    goal = Collective(kind, num_ranks)
    core = np.arange(core_size(num_ranks))
    rounds = [moves_round(core, core ^ bit, 0, MoveOp.REDUCE) for bit in _bits(num_ranks)]
    before, after = _fold(num_ranks, 1)
    return Kernel("recursive doubling", goal, 1, (*before, *rounds, *after))


def halving_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return recursive halving, recursive doubling, or both."""
    goal = Collective(kind, num_ranks)
    num_chunks = core_size(num_ranks) if kind is Kind.ALL_REDUCE else num_ranks
    before, after = _fold(num_ranks, num_chunks)
    down = [_exchange(num_ranks, num_chunks, bit, halve=True) for bit in reversed(_bits(num_ranks))]
    up = [_exchange(num_ranks, num_chunks, bit, halve=False) for bit in _bits(num_ranks)]
    rounds = {
        Kind.ALL_REDUCE: (*before, *down, *up, *after),
        Kind.REDUCE_SCATTER: (*before, *down, *_hand_over(num_ranks, to_core=False)),
        Kind.ALL_GATHER: (*_hand_over(num_ranks, to_core=True), *up, *after),
    }[kind]
    return Kernel(f"halving-doubling {kind}", goal, num_chunks, rounds)


def _bits(num_ranks: int) -> list[int]:
    return [1 << k for k in range(num_ranks.bit_length() - 1)]


def _extras(num_ranks: int) -> Ints:
    return np.arange(core_size(num_ranks), num_ranks)


def _fold(num_ranks: int, num_chunks: int) -> tuple[tuple[Round, ...], tuple[Round, ...]]:
    """Return the rounds in which ranks outside the core give their whole buffer to a partner and get it all back."""
    extra = _extras(num_ranks)
    if not len(extra):
        return (), ()
    partner = extra - core_size(num_ranks)
    give = moves_round(extra, partner, 0, MoveOp.REDUCE, count=num_chunks)
    return (give,), (moves_round(partner, extra, 0, MoveOp.COPY, count=num_chunks),)


def _hand_over(num_ranks: int, *, to_core: bool) -> tuple[Round, ...]:
    """Return the round that moves the blocks of ranks outside the core between them and their partners."""
    extra = _extras(num_ranks)
    if not len(extra):
        return ()
    partner = extra - core_size(num_ranks)
    src, dst = (extra, partner) if to_core else (partner, extra)
    return (moves_round(src, dst, extra, MoveOp.COPY),)


def _exchange(num_ranks: int, num_chunks: int, bit: int, *, halve: bool) -> Round:
    """Return one round between partners at distance `bit`: each sends the half the other keeps, or the half it has.

    A rank stands for its block and, past a power of two, for that of the rank it helps: blocks core + rank.
    """
    core = core_size(num_ranks)
    rank = np.arange(core)
    side = (rank ^ bit if halve else rank) & -bit  # where the half that is sent starts
    src, dst, low, count = [rank], [rank ^ bit], [side], [np.full(core, bit)]
    if num_chunks > core:
        more = np.clip(num_chunks - core - side, 0, bit)
        keep = more > 0
        src, dst = [rank, rank[keep]], [rank ^ bit, (rank ^ bit)[keep]]
        low, count = [side, (core + side)[keep]], [count[0], more[keep]]
    op = MoveOp.REDUCE if halve else MoveOp.COPY
    whole = [np.concatenate(column) for column in (src, dst, low, count)]
    return moves_round(whole[0], whole[1], whole[2], op, count=whole[3])
