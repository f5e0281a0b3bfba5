"""How far off a previewed step may be: its kernels as those that were measured, its communication as NCCL's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.describe.own_data import own_data
from syncline.fabric import load
from syncline.previewing.exposed import CollectiveUse, talking
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.sim.uncertainty import Spread, preview_spread

USE = CollectiveUse("all_reduce", 64, "backward", 4, 4 * 2.0**30, 2.0**32, 0.4, 0.1, "model", "link")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return machine_from_fabric(load("h100-64-rail"))


@pytest.mark.parametrize("kernels", ["products", "convolutions", "host"])
def test_nine_of_ten_measured_previews_lie_in_their_interval(kernels: str) -> None:
    spread = preview_spread("Hopper", 8, kernels)
    scored = own_data("sim", "data/previews.yaml")["previews"]
    alike = [each for each in scored if kernels in (each["decides"], each["decides"] == "kernels" and each["kernels"])]
    ratios = [1 / (1 + each["off_percent"] / 100) for each in alike]
    assert spread.num_rows == len(ratios) >= 15
    assert sum(spread.low_90 <= ratio <= spread.high_90 for ratio in ratios) >= 0.85 * len(ratios)
    assert spread.low_90 <= spread.low_50 <= 1.0 <= spread.high_50 <= spread.high_90


def test_a_step_is_as_sure_as_what_bounds_it() -> None:
    kernels, host = preview_spread("Hopper", 8), preview_spread("Hopper", 8, "host")
    assert kernels.longer_of(host, 1.0, 0.1) == kernels
    between = kernels.longer_of(host, 1.0, 0.9)
    assert between.high_90 == max(kernels.high_90, 0.9 * host.high_90)
    assert kernels.longer_of(host, 0.1, 1.0).low_90 == max(0.1 * kernels.low_90, host.low_90)


def test_what_was_never_measured_is_wider_and_said() -> None:
    near = preview_spread("Hopper", 128)
    for wider, why in (
        (preview_spread("Hopper", 1024), "no preview was measured on more than 128 ranks"),
        (preview_spread("Blackwell", 8), "no preview was ever measured on Blackwell"),
        (preview_spread("assumed rates", 8), "what it sustains is assumed"),
    ):
        assert wider.low_90 < near.low_90 and wider.high_90 > near.high_90
        assert why in wider.basis and why not in near.basis


def test_communication_is_as_far_off_as_nccl(machine: Machine) -> None:
    kernels = Spread(0.9, 1.0, 1.0, 1.2, 9, 3, "kernels")
    quiet = talking(kernels, 1.0, 0.0, [], machine)
    assert quiet == kernels
    hidden = talking(kernels, 1.0, 0.0, [replace(USE, total_s=0.1, exposed_s=0.0)], machine)
    assert (hidden.low_90, hidden.high_90) == pytest.approx((0.9, 1.2))  # it still fits behind the kernels
    bare = talking(kernels, 1.0, 0.1, [USE], machine)
    net = (bare.high_90 - 1.2 * 0.9) / 0.1
    assert net > 1.0 and bare.low_90 < 0.9 * 0.9 + 0.1
    full = talking(kernels, 1.0, 0.1, [replace(USE, total_s=1.0)], machine)
    assert full.high_90 == pytest.approx(bare.high_90 + max(net * 0.9 - 0.9, 0.0))
    assert "systems" in full.basis
