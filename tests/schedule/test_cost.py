from __future__ import annotations

import pytest

from syncline.errors import ProgramError, ScheduleError
from syncline.fabric import load
from syncline.program import place
from syncline.schedule import build, hierarchical, ring
from syncline.schedule.cost import cost


def test_classes_add_up_to_all_that_is_sent() -> None:
    fabric = load("h100-64-rail")
    for schedule in (ring(512), hierarchical((64, 8)), build("parameter-server", 512), build("in-network", 512)):
        found = cost(schedule, fabric, 1 << 20)
        sent = found.sent_bytes_mean * 512
        down = found.link_bytes["to_helpers"] / 2 if schedule.num_helpers else 0
        assert sum(found.link_bytes.values()) >= sent - 1
        assert schedule.num_helpers or sum(found.link_bytes.values()) == pytest.approx(sent)
        assert down >= 0


def test_inside_one_host_nothing_crosses() -> None:
    found = cost(ring(8), load("h100-64-rail"), 1 << 20)
    assert found.link_bytes["inside_rack"] == found.link_bytes["across"] == 0
    assert found.tier_bytes is not None
    assert found.tier_bytes["access"] == 0


def test_placements() -> None:
    fabric = load("h100-64-rail")
    spread = place("spread", fabric).device
    assert fabric.devices.host[spread[:64]].tolist() == list(range(64))
    assert place("packed", fabric).device.tolist() == fabric.gpus.tolist()
    with pytest.raises(ProgramError, match="not a torus of chips"):
        place("grid", fabric)
    with pytest.raises(ScheduleError, match="two ranks on one GPU"):
        cost(ring(2), fabric, 1, ranks_on=[3, 3])


def test_one_rank_costs_nothing() -> None:
    found = cost(ring(1), load("h100-64-rail"), 1 << 30)
    assert found.sent_bytes_per_rank == 0
    assert found.busiest_link == ""
