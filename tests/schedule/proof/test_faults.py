from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedule.proof.faults import FAULTS, plant
from tests.schedule.proof.reference import performs

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule import Kind, Schedule, Strand, hierarchical, ring, verify
from syncline.schedule.family.families import FAMILIES, Options
from syncline.schedule.kernel import Kernel
from syncline.schedule.proof.field import Residues
from syncline.schedule.proof.flatten import flatten
from syncline.schedule.proof.safety import check_safety
from syncline.schedule.proof.verify import _check_all, prove_kernel

CASES = [(name, kind) for name, family in FAMILIES.items() for kind in family.kinds if kind is not Kind.ALL_TO_ALLV]


def proves(kernel: Kernel) -> bool:
    try:
        prove_kernel(kernel)
    except NotProvedError:
        return False
    return True


def proves_with_random_numbers(kernel: Kernel, seed: int) -> bool:
    try:
        check_safety(kernel, kernel.num_chunks)
        _check_all(kernel, Residues(seed), max(1, kernel.num_chunks // 2))
    except NotProvedError:
        return False
    return True


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_proof_agrees_with_the_plain_python_twin_on_every_fault(name: str, kind: Kind, fault: str) -> None:
    schedule = FAMILIES[name].make(Options(4, kind, peer=3, chunks=2))
    kernel = flatten(schedule, schedule.strands[0])
    assert performs(kernel)
    for seed in range(2):
        broken = plant(kernel, fault, seed)
        right = performs(broken)
        assert proves(broken) == right
        assert proves_with_random_numbers(broken, seed) == right


@pytest.mark.parametrize("fault", ["dropped", "wrong op"])
def test_faults_that_always_hurt_a_ring(fault: str) -> None:
    kernel = ring(5).strands[0].stages[0].kernel
    for seed in range(20):
        assert not proves(plant(kernel, fault, seed))


@given(
    shape=st.sampled_from([(2, 2), (3, 2), (2, 3), (2, 2, 2)]),
    fault=st.sampled_from(sorted(FAULTS)),
    stage=st.integers(0, 4),
    kind=st.sampled_from([Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_factored_proof_never_accepts_what_the_flat_one_refuses(
    shape: tuple[int, ...], fault: str, stage: int, kind: Kind, seed: int
) -> None:
    right = hierarchical(shape, kind, families=("direct",) + ("ring",) * (len(shape) - 1))
    stages = list(right.strands[0].stages)
    at = stage % len(stages)
    stages[at] = replace(stages[at], kernel=plant(stages[at].kernel, fault, seed))
    broken = Schedule("broken", right.collective, (Strand(tuple(stages), right.strands[0].num_chunks),))
    flat = performs(flatten(broken, broken.strands[0]))

    def accepts(method: str) -> bool:
        try:
            verify(broken, method=method)
        except NotProvedError:
            return False
        return True

    assert accepts("flat") == flat
    if accepts("factored"):
        assert flat


@given(n=st.integers(2, 7), fault=st.sampled_from(["dropped", "doubled", "wrong op"]), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_error_names_rank_chunk_and_round(n: int, fault: str, seed: int) -> None:
    broken = plant(ring(n).strands[0].stages[0].kernel, fault, seed)
    try:
        prove_kernel(broken)
    except NotProvedError as error:
        text = str(error)
        assert "rank " in text
        assert "chunk " in text
        assert "round" in text


def test_unknown_fault() -> None:
    with pytest.raises(ScheduleError, match="One of: dropped"):
        plant(ring(2).strands[0].stages[0].kernel, "haunted", 0)
