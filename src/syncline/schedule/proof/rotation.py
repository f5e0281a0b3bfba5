"""Kernels that look the same from every rank: one chunk proves them all.

If moving every rank and every chunk on by one turns each round into itself, then what happens to chunk 0 happens to
chunk c with all ranks moved on by c, and the goals here are the same from every rank too. So the proof for chunk 0 (for
all-to-all: the chunks rank 0 gives) is the proof. Rings, pairwise exchanges and Bruck's algorithm rotate.
Halving-doubling over a power of two is the same under another change of names: flipping the same bits of every rank and
chunk (`mirrors`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.schedule.collective import ALL, PAIRED, Ints, Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Round
from syncline.schedule.proof.field import Residues

_EVEN = frozenset({Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER}) | PAIRED


def rotates(kernel: Kernel) -> bool:
    """Whether the kernel is the same from every rank."""
    goal, n = kernel.goal, kernel.num_ranks
    chunks = n * n if goal.kind in PAIRED else n
    fits = goal.kind in _EVEN and kernel.num_chunks == chunks and not kernel.num_helpers
    return fits and all(_rotates(entry, n, goal.kind in PAIRED) for entry in kernel.rounds)


def representatives(kernel: Kernel) -> int:
    """Return how many chunks, from chunk 0 on, must be looked at to know them all."""
    if rotates(kernel):
        return kernel.num_ranks if kernel.goal.kind in PAIRED else 1
    return 1 if mirrors(kernel) else kernel.num_chunks


def mirrors(kernel: Kernel) -> bool:
    """Whether flipping any bits of all ranks and chunks alike turns every round into itself."""
    n = kernel.num_ranks
    fits = kernel.goal.kind in _EVEN - PAIRED and kernel.num_chunks == n and not kernel.num_helpers
    return fits and n & (n - 1) == 0 and all(_mirrors(entry, n) for entry in kernel.rounds)


def _mirrors(entry: Round, n: int) -> bool:
    """Rows of aligned runs of a power of two chunks, the same seen from every source by exclusive or."""
    once = entry.wrap and entry.repeat == 1 and entry.window == n and not entry.block.any()
    if not once or not entry.num_rows or entry.num_rows % n or (entry.count & (entry.count - 1)).any():
        return False
    if (
        (entry.count < 1).any()
        or (entry.chunk < 0).any()
        or (entry.chunk >= n).any()
        or (entry.chunk % entry.count).any()
    ):
        return False
    return _same_from_all(entry, _mirror_orbits(entry), n)


def _mirror_orbits(entry: Round) -> list[Ints]:
    low = entry.chunk ^ (entry.src & -entry.count)
    return [entry.dst ^ entry.src, low, entry.count, entry.op.astype(np.int64)]


def _same_from_all(entry: Round, orbit: list[Ints], n: int) -> bool:
    """Whether the rows fall into sets that are alike as seen from their source, with every source once in each."""
    order = np.lexsort((entry.src, *orbit))
    alike = all((column[order].reshape(-1, n) == column[order].reshape(-1, n)[:, :1]).all() for column in orbit)
    return alike and bool((entry.src[order].reshape(-1, n) == np.arange(n)).all())


def _rotates(entry: Round, n: int, paired: bool) -> bool:
    whole = entry.wrap and entry.window == n and (entry.src_base, entry.src_size) == (entry.dst_base, entry.dst_size)
    if not whole or (entry.src_base, entry.src_size) != (0, n) or entry.num_rows % n:
        return False
    if (entry.block % n).any() or (not paired and entry.block.any()):
        return False
    return _same_from_all(entry, _orbits(entry, n, paired), n)


def _orbits(entry: Round, n: int, paired: bool) -> list[Ints]:
    """Return each row as seen from its source."""
    giver = (entry.block // n - entry.src) % n if paired else entry.block
    return [(entry.dst - entry.src) % n, (entry.chunk - entry.src) % n, entry.count, entry.op.astype(np.int64), giver]


def holds(kernel: Kernel, numbers: Residues) -> int | None:
    """Return None when chunk 0 of a kernel that is the same from every rank ends right, else a rank where not."""
    n, p = kernel.num_ranks, numbers.prime
    given, unknown = numbers.contributions(n).tolist(), numbers.unknowns(n).tolist()
    first = np.zeros(1, dtype=np.int64)
    giver, taker = (int(of(kernel.num_chunks, first)[0]) for of in (kernel.goal.givers, kernel.goal.takers))
    state = given[:] if giver == ALL else unknown
    if giver != ALL:
        state[giver] = given[giver]
    want = sum(given) % p if giver == ALL else given[giver]
    moves = _moves_of_first if rotates(kernel) else _runs_of_first
    for entry in kernel.rounds:
        for src, dst, op in moves(entry, n):
            _apply(state, src, dst, op, p)
    return next((rank for rank in (range(n) if taker == ALL else [taker]) if state[rank] != want), None)


def _apply(state: list[int], src: list[int], dst: list[int], op: list[int], prime: int) -> None:
    if len(src) == 1:
        value = state[src[0]]
        state[dst[0]] = value if op[0] == MoveOp.COPY else (state[dst[0]] + value) % prime
        return
    values = [state[vertex] for vertex in src]
    for value, vertex, kind in sorted(zip(values, dst, op, strict=True), key=lambda move: move[2]):
        state[vertex] = value if kind == MoveOp.COPY else (state[vertex] + value) % prime


def _moves_of_first(entry: Round, n: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield, for each round, the moves of chunk 0: the row of each orbit that sends it then."""
    rows = np.flatnonzero(entry.src == 0)
    row = np.repeat(rows, entry.count[rows])
    inside = np.arange(len(row)) - (np.cumsum(entry.count[rows]) - entry.count[rows]).repeat(entry.count[rows])
    j = np.arange(entry.repeat)[:, None]
    start = -(entry.chunk[row] + inside + j * entry.chunk_step) % n  # the rank whose copy of this row sends chunk 0
    src = ((start + j * entry.src_step) % n).tolist()
    dst = ((start + entry.dst[row] + j * entry.dst_step) % n).tolist()
    op = entry.op[row].tolist()
    if entry.at_once:
        yield [v for part in src for v in part], [v for part in dst for v in part], op * entry.repeat
        return
    for a, b in zip(src, dst, strict=True):
        yield a, b, op


def _runs_of_first(entry: Round, n: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield the moves of chunk 0 in the one round of an entry whose runs start at multiples of their length."""
    rows = np.flatnonzero(entry.chunk == 0)
    yield entry.src[rows].tolist(), entry.dst[rows].tolist(), entry.op[rows].tolist()
