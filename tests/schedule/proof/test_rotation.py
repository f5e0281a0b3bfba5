"""One chunk for all: the shortcut must say what looking at every chunk says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedule.proof.reference import performs

from syncline.errors import NotProvedError
from syncline.schedule import Collective, Kind
from syncline.schedule.family.bruck import bruck_kernel
from syncline.schedule.family.direct import direct_kernel, pairwise_kernel
from syncline.schedule.family.halving_doubling import halving_kernel
from syncline.schedule.family.ring import ring_kernel
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, moves_round
from syncline.schedule.proof.field import Residues
from syncline.schedule.proof.rotation import holds, mirrors, representatives, rotates
from syncline.schedule.proof.safety import check_safety

TURNING = [Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER]


@pytest.mark.parametrize("kind", TURNING)
def test_rings_and_exchanges_rotate(kind: Kind) -> None:
    for make in (ring_kernel, direct_kernel, pairwise_kernel, bruck_kernel):
        kernel = make(kind, 6)
        assert rotates(kernel)
        assert holds(kernel, Residues(1)) is None
        assert representatives(kernel) == 1
    assert not rotates(halving_kernel(kind, 8))


def test_all_to_all_needs_the_chunks_of_one_rank() -> None:
    assert representatives(pairwise_kernel(Kind.ALL_TO_ALL, 5)) == 5
    assert representatives(bruck_kernel(Kind.ALL_TO_ALL, 5)) == 5
    still = moves_round(np.arange(5), (np.arange(5) + 1) % 5, np.arange(5), MoveOp.COPY, window=5)
    assert not rotates(Kernel("all on block 0", Collective(Kind.ALL_TO_ALL, 5), 25, (still,)))


def test_one_row_out_of_step_does_not_rotate() -> None:
    right = ring_kernel(Kind.ALL_REDUCE, 5)
    chunk = right.rounds[0].chunk.copy()
    chunk[2] += 1
    assert not rotates(replace(right, rounds=(replace(right.rounds[0], chunk=chunk), right.rounds[1])))


@given(
    n=st.integers(2, 7),
    kind=st.sampled_from(TURNING),
    rows=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 1), st.integers(1, 3), st.integers(-2, 2),
                  st.integers(0, 6), st.integers(0, 2), st.booleans()),
        max_size=4,
    ),
    honest=st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_agrees_with_the_twin_on_random_turning_kernels(
    n: int, kind: Kind, rows: list[tuple[int, int, int, int, int, int, int, bool]], honest: int
) -> None:
    rank = np.arange(n)
    entries = list((ring_kernel, direct_kernel, pairwise_kernel, bruck_kernel)[honest](kind, n).rounds)
    for far, chunk, op, count, step, repeat, hop, at_once in rows:
        if far % n == 0:
            continue
        entries.append(moves_round(rank, (rank + far) % n, (rank + chunk) % n, op, count=min(count, n), repeat=repeat,
                                   chunk_step=step, dst_step=hop, src_step=hop, at_once=at_once))  # fmt: skip
    kernel = Kernel("random", Collective(kind, n), n, tuple(entries))
    assert rotates(kernel)
    if performs(kernel):
        assert holds(kernel, Residues(5)) is None
    elif holds(kernel, Residues(5)) is None:  # then only safety can be wrong
        with pytest.raises(NotProvedError):
            check_safety(kernel, representatives(kernel))


@pytest.mark.parametrize("kind", TURNING)
@pytest.mark.parametrize("n", [2, 4, 16])
def test_halving_doubling_over_powers_of_two_mirrors(kind: Kind, n: int) -> None:
    kernel = halving_kernel(kind, n)
    assert mirrors(kernel)
    assert holds(kernel, Residues(1)) is None
    assert not mirrors(halving_kernel(kind, n + n // 2)) or n == 2


@given(
    bits=st.integers(1, 3),
    kind=st.sampled_from(TURNING),
    rows=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 7), st.integers(0, 3), st.integers(0, 1)), max_size=4),
    honest=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_agrees_with_the_twin_on_random_mirroring_kernels(
    bits: int, kind: Kind, rows: list[tuple[int, int, int, int]], honest: bool
) -> None:
    n = 1 << bits
    rank = np.arange(n)
    entries = list(halving_kernel(kind, n).rounds) if honest else []
    for flip, low, width, op in rows:
        count = 1 << min(width, bits)
        if flip % n:
            chunk = (low % n & -count) ^ (rank & -count)
            entries.append(moves_round(rank, rank ^ (flip % n), chunk, op, count=count))
    kernel = Kernel("random", Collective(kind, n), n, tuple(entries))
    assert mirrors(kernel)
    right = holds(kernel, Residues(5)) is None
    try:
        check_safety(kernel, 1)
    except NotProvedError:
        right = False
    assert right == performs(kernel)
