"""The rounds a simulator sees carry exactly what the schedule moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.schedule import FAMILIES, Collective, Kind, Schedule, direct, ring, verify
from syncline.schedule import build as family
from syncline.sim.flow.rounds import lanes

NAMES = [name for name in FAMILIES if name != "balanced"]


def sent_by_pair(schedule: Schedule, size: int) -> np.ndarray:
    """Count every single move of the schedule itself."""
    total = np.zeros((schedule.num_vertices, schedule.num_vertices))
    for number, strand in enumerate(schedule.strands):
        nbytes = schedule.chunk_bytes(number, size)
        for moves in strand.steps():
            np.add.at(total, (moves.src, moves.dst), nbytes[moves.chunk])
    return total


def rounds_by_pair(schedule: Schedule, size: int) -> np.ndarray:
    total = np.zeros((schedule.num_vertices, schedule.num_vertices))
    for lane in lanes(schedule):
        for phase in lane.phases:
            np.add.at(total, (phase.src, phase.dst), phase.share * size * phase.repeat)
    return total


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([2, 3, 4, 6, 8, 9, 12, 16]), st.integers(1, 3), st.integers(0, 9))
def test_every_pair_moves_what_the_schedule_moves(name: str, ranks: int, channels: int, chunks: int) -> None:
    schedule = family(name, ranks, channels=channels, chunks=chunks)
    size = 5040 * 720720  # divides by every count of chunks in play
    np.testing.assert_allclose(rounds_by_pair(schedule, size), sent_by_pair(schedule, size), rtol=1e-6)


def test_rounds_are_counted_like_the_schedule_counts_them() -> None:
    for name in ("ring", "tree", "halving-doubling", "hierarchical"):
        schedule = family(name, 16)
        assert lanes(schedule)[0].num_rounds == schedule.num_rounds
    assert lanes(ring(1024))[0].num_flows == 2 * 1023 * 1024
    assert sum(len(phase) for phase in lanes(ring(1024))[0].phases) == 2 * 1024


def test_uneven_blocks_keep_their_sizes() -> None:
    sizes = (1, 2, 3, 0, 5, 6, 7, 8, 9)
    schedule = direct(3, Kind.ALL_TO_ALLV, sizes=sizes)
    verify(schedule)
    assert schedule.collective == Collective(Kind.ALL_TO_ALLV, 3, sizes=sizes)
    size = 41 * 1000
    np.testing.assert_allclose(rounds_by_pair(schedule, size), sent_by_pair(schedule, size), rtol=1e-4)


def test_channels_of_one_ring_share_their_phases() -> None:
    found = lanes(ring(64, channels=4))
    assert len({id(lane.phases) for lane in found}) == 1
    assert found[0].phases[0].share.sum() == pytest.approx(0.25)
