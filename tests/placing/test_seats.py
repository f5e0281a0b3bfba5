"""Units of ranks that are alike in every way have one number; those that share a host do not."""

from __future__ import annotations

from syncline.fabric import load
from syncline.placing.allocation import Allocation, GrantedHost, allocation, from_list
from syncline.placing.seats import seats_of
from syncline.workload.parallel import Parallel

FABRIC = load("h100-64-rail")


def _kinds(given: Allocation) -> list[int]:
    kinds: list[int] = seats_of(FABRIC, given, Parallel.model_validate({"tp": 4, "dp": 2})).kind.tolist()
    return kinds


def test_whole_hosts_of_one_leaf_are_alike() -> None:
    assert len(set(_kinds(from_list(FABRIC, "0-3")))) == 1


def test_units_that_share_a_host_differ_by_it() -> None:
    parts = [GrantedHost(FABRIC.host_names[0]), GrantedHost(FABRIC.host_names[1], (0, 1, 2, 3))]
    assert _kinds(allocation(FABRIC, parts, "test")) == [0, 0, 1]
