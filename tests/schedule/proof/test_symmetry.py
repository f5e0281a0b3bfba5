"""A change of names: the shortcut must refuse whatever looking at every chunk refuses."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule import Kind, Schedule, Strand, hierarchical, torus, verify
from syncline.schedule.proof.compose import compose
from syncline.schedule.proof.cover import cover
from syncline.schedule.proof.field import Residues
from syncline.schedule.proof.symmetry import orbits

OWNED = [Kind.REDUCE_SCATTER, Kind.ALL_GATHER]


CHANGES = ["none", "drop", "double", "reverse", "swap members", "swap bases", "other kernel", "shift"]


def all_orbits(schedule: Schedule) -> set[int]:
    strand = schedule.strands[0]
    covers = [cover(stage, strand.num_chunks) for stage in strand.stages]
    return set(orbits(schedule.collective, strand.stages, covers, strand.num_chunks).tolist())


@pytest.mark.parametrize("kind", OWNED)
@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (3, 2, 2), (5, 1, 2)])
def test_levels_are_one_orbit(kind: Kind, shape: tuple[int, ...]) -> None:
    assert all_orbits(hierarchical(shape, kind)) == {0}
    assert all_orbits(torus(shape, kind)) == {0}


def accepts(schedule: Schedule, symmetric: bool) -> bool:
    try:
        compose(schedule, schedule.strands[0], Residues(7), symmetric=symmetric)
    except (NotProvedError, ScheduleError):
        return False
    return True


@given(
    shape=st.sampled_from([(2, 2), (2, 3), (3, 3), (4, 2), (2, 2, 2)]),
    kind=st.sampled_from([*OWNED, Kind.ALL_REDUCE]),
    change=st.sampled_from(
        ["none", "drop", "double", "reverse", "swap members", "swap bases", "other kernel", "shift"]
    ),
    at=st.integers(0, 4),
    seed=st.integers(0, 999),
)
@settings(max_examples=100, deadline=None)
def test_with_and_without_agree_on_broken_strands(
    shape: tuple[int, ...], kind: Kind, change: str, at: int, seed: int
) -> None:
    right = hierarchical(shape, kind)
    stages = list(right.strands[0].stages)
    at %= len(stages)
    draw = np.random.default_rng(seed)
    stage = stages[at]
    if change == "drop":
        del stages[at]
    elif change == "double":
        stages.insert(at, stage)
    elif change == "reverse":
        stages.reverse()
    elif change == "swap members":
        members = stage.members.copy().ravel()
        i, j = draw.integers(prod(shape), size=2)
        members[[i, j]] = members[[j, i]]
        stages[at] = replace(stage, members=members.reshape(stage.members.shape))
    elif change == "swap bases":
        stages[at] = replace(stage, base=draw.permutation(stage.base))
    elif change == "shift":
        stages[at] = replace(stage, members=np.roll(stage.members, 1, axis=int(draw.integers(2))))
    elif change == "other kernel":
        other = stages[int(draw.integers(len(stages)))]
        if other.kernel.num_ranks == stage.kernel.num_ranks and other.kernel.num_chunks == stage.kernel.num_chunks:
            stages[at] = replace(stage, kernel=other.kernel)
    broken = Schedule("broken", right.collective, (Strand(tuple(stages), right.strands[0].num_chunks),))
    assert accepts(broken, True) == accepts(broken, False)


def test_large_gathers_are_proved_at_once() -> None:
    for kind in OWNED:
        verify(hierarchical((512, 8), kind))
        verify(hierarchical((16, 16, 8), kind, families=("direct", "ring", "halving-doubling")))
