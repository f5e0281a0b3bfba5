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
def test_groups_partition_the_ranks(tp: int, cp: int, dp: int, pp: int) -> None:
    grid = grid_of(Parallel(tp=tp, cp=cp, dp=dp, pp=pp))
    for axis, size in (("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp), ("dp+cp", dp * cp)):
        groups = grid.groups(axis)
        assert groups.shape == (grid.num_ranks // size, size)
        assert sorted(groups.ravel().tolist()) == list(range(grid.num_ranks))
        if size > 1 and axis != "dp+cp":
            assert (np.diff(groups, axis=1) == grid.stride(axis)).all()


def test_tensor_neighbours_share_a_host() -> None:
    grid = grid_of(Parallel(tp=8, pp=4, dp=2))
    hosts = grid.hosts(8)
    assert all(len(set(hosts[group])) == 1 for group in grid.groups("tp"))
    assert grid.inside("tp", 8) == 8
    assert grid.inside("dp", 8) == 1
    assert grid.stride("pp") == 16


def test_an_order_must_name_every_axis() -> None:
    with pytest.raises(DescriptionError, match="must name tp, cp, dp, pp once each"):
        grid_of(Parallel(order=("tp", "dp")))
