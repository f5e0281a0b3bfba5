from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from research.collectives.nccl_fit import MACHINE, NETWORK, NcclFit, Sweep, fit, fit_left_out

from syncline.sim.nccl.constants import left_out_constants, read_data
from syncline.sim.nccl.job import NcclOperation
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.system import NcclSystem

SIZES = (2.0 ** np.arange(3, 34, 2)).astype(np.float64)


def sweep(network: str, hosts: int = 4, **changes: float) -> Sweep:
    system = NcclSystem(gpu="h100", num_hosts=hosts, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network=network)
    constants = NcclFit().constants().with_network(network, **changes)
    truth = times_us(
        NcclOperation(system, "all_reduce", constants), chosen_pairs(system, "all_reduce", SIZES)[0], SIZES
    )
    return Sweep("made up", system, "all_reduce", SIZES, truth, np.ones(len(SIZES)))


def test_fit_finds_constants_that_made_the_rows() -> None:
    rows = sweep("roce", hop_us=20.0, efficiency=0.7)
    deeper = sweep("roce", hosts=32, hop_us=20.0, efficiency=0.7)  # one depth cannot tell a hop from a level
    found = fit([rows, deeper])
    assert found.networks["roce"]["hop_us"] == pytest.approx(20.0, rel=0.2)
    assert found.networks["roce"]["efficiency"] == pytest.approx(0.7, rel=0.05)
    assert "infiniband" not in found.networks
    assert set(found.networks["roce"]) <= {"hop_us", "efficiency", "ring_hop", "ring_ll128_pace_us"}, found.networks
    assert np.median(np.abs(rows.residual(found.constants()))) < 0.05


def test_a_shared_parent_learns_from_its_children() -> None:
    rows = sweep("slingshot", hop_us=30.0)
    before = NcclFit().constants().networks["unknown"].hop_us
    found = fit([rows], rounds=1)
    assert found.constants().networks["unknown"].hop_us > before + 5
    assert found.constants().networks["efa-v2"].hop_us == found.constants().networks["unknown"].hop_us


def test_a_kind_without_rows_keeps_its_parent() -> None:
    constants = fit([sweep("tcpxo", hosts=n, hop_us=50.0) for n in (4, 32)], rounds=1).constants()
    assert constants.networks["tcpx"].hop_us == constants.networks["tcpxo"].hop_us > 35


def test_leaving_a_system_out_fits_only_what_prices_its_rows() -> None:
    sweeps = [sweep("roce", hop_us=20.0), sweep("slingshot", hop_us=30.0)]
    sweeps[1] = replace(sweeps[1], label="other")
    full = fit(sweeps, rounds=1)
    without = fit_left_out(sweeps, full, ["other"])["other"]
    assert without.networks["roce"] == full.networks["roce"]
    assert "slingshot" not in without.networks


def test_what_the_rows_cannot_tell_from_its_prior_is_dropped() -> None:
    rows = [sweep("roce", hosts=n) for n in (4, 32)]
    assert fit(rows, rounds=1).num_constants == 0


def test_every_shipped_constant_lies_in_its_range() -> None:
    """About forty constants, each of which reads as what it is named."""
    fitted, prior = read_data("nccl_fitted"), NcclFit().constants().machine
    mine = [(name, v, NETWORK[name]) for row in fitted["networks"].values() for name, v in row.items()]
    for name, value in fitted["machine"].items():
        table = zip(value, getattr(prior, name), strict=True) if isinstance(value, list) else [(value, 0.0)]
        mine += [(name, new, MACHINE[name]) for new, old in table if new != old]
    assert 30 <= len(mine) <= 45
    assert not [(name, value) for name, value, reading in mine if not reading.least <= value <= reading.most]


def test_shipped_fit_has_left_out_constants_of_each_fitted_system() -> None:
    names = left_out_constants()
    assert any("Polaris" in name for name in names)
    assert len(names) >= 12
