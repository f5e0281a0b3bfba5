"""Units of ranks that are alike in every way have one number; those that share a host do not."""

from __future__ import annotations

import numpy as np

from syncline.fabric import load
from syncline.placing.seats import _kinds

FABRIC = load("h100-64-rail")


def test_whole_hosts_of_one_leaf_are_alike() -> None:
    assert len(set(_kinds(FABRIC, np.arange(4)).tolist())) == 1


def test_units_that_share_a_host_differ_by_it() -> None:
    assert _kinds(FABRIC, np.array([0, 0, 1, 1])).tolist() == [0, 0, 1, 1]
