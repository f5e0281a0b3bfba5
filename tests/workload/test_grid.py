"""Rank grids: every rank once in every axis's groups, neighbours where they should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import DescriptionError
from syncline.workload.grid import grid_of
from syncline.workload.parallel import Parallel

SMALL = st.sampled_from([1, 2, 3, 4])


@given(tp=SMALL, cp=SMALL, dp=SMALL, pp=SMALL)
def test_every_rank_has_its_own_place(tp: int, cp: int, dp: int, pp: int) -> None:
    grid = grid_of(Parallel(tp=tp, cp=cp, dp=dp, pp=pp))
    ranks = np.arange(grid.num_ranks)
    at = grid.coordinates(ranks)
    assert np.array_equal(sum(at[axis] * grid.stride(axis) for axis in grid.order), ranks)
    assert all((at[axis] < grid.sizes[axis]).all() for axis in grid.order)


def test_tensor_neighbours_are_neighbours_in_rank() -> None:
    grid = grid_of(Parallel(tp=8, pp=4, dp=2))
    assert (grid.stride("tp"), grid.stride("dp"), grid.stride("pp"), grid.stride("ep")) == (1, 8, 16, 1)


def test_an_order_must_name_every_axis() -> None:
    with pytest.raises(DescriptionError, match="must name tp, cp, dp, pp once each"):
        grid_of(Parallel(order=("tp", "dp")))
