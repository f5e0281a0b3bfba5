"""The number of chunks of a pipeline: as many as flows allow, one where chunks cannot overlap."""

from __future__ import annotations

from dataclasses import replace

from syncline.sim.pipeline import MAX_CHUNKS, MAX_FLOWS, ChunkCosts

COSTS = ChunkCosts(8, 8e-6, 1e-6, 8e-10, 1e-10, 16)


def test_large_buffers_are_cut_and_small_ones_are_not() -> None:
    assert COSTS.guess(1 << 30) > 16
    assert COSTS.guess(1 << 10) == 1
    assert COSTS.guess(1 << 40) <= MAX_CHUNKS


def test_many_flows_leave_few_chunks() -> None:
    assert replace(COSTS, flows=MAX_FLOWS // 3).guess(1 << 30) <= 3
    assert replace(COSTS, flows=2 * MAX_FLOWS).guess(1 << 30) == 1


def test_rounds_that_keep_the_busiest_link_busy_are_not_cut() -> None:
    assert replace(COSTS, alone_s_per_byte=1e-10).guess(1 << 30) == 1
    assert replace(COSTS, rounds=1).guess(1 << 30) == 1
