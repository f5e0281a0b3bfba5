"""Large schedules: proved in little time, and every method still refuses what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.errors import NotProvedError
from syncline.schedule import Kind, build, direct, hierarchical, ring, torus, verify
from syncline.schedule.proof.verify import prove_kernel


def test_a_ring_of_4096_is_proved() -> None:
    verify(ring(4096))


def test_2048_hosts_of_8_are_proved() -> None:
    verify(hierarchical((2048, 8)))


@pytest.mark.parametrize("kind", [Kind.ALL_TO_ALL, Kind.ALL_REDUCE])
def test_pairwise_of_600(kind: Kind) -> None:
    assert "symmetry" in verify(direct(600, kind, at_once=False)).method
    work = direct(600, kind, at_once=False).strands[0].stages[0].kernel
    for first in (replace(work.rounds[0], chunk_step=2), replace(work.rounds[0], repeat=598)):
        with pytest.raises(NotProvedError):
            prove_kernel(replace(work, rounds=(first, *work.rounds[1:])))


def test_others_at_a_thousand_ranks() -> None:
    verify(build("halving-doubling", 1000))
    verify(build("bruck", 1000))
    verify(torus((10, 10, 10)))
    verify(hierarchical((10, 10, 10), families=("tree", "ring", "direct")))


def test_a_large_kernel_without_symmetry_is_proved_in_slices() -> None:
    assert verify(build("halving-doubling", 500)).method == "random numbers"
    assert "symmetry" in verify(build("halving-doubling", 512)).method
    right = build("halving-doubling", 512).strands[0].stages[0].kernel
    broken = right.rounds[3].dst.copy()
    broken[7] = (broken[7] + 64) % 512  # a rank that does not keep what it gets
    rounds = (*right.rounds[:3], replace(right.rounds[3], dst=broken), *right.rounds[4:])
    with pytest.raises(NotProvedError, match="rank"):
        prove_kernel(replace(right, rounds=rounds))
