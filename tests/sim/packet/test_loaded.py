"""Background that goes on until the rest is done, and what befell each load."""

from __future__ import annotations

import pytest
from tests.sim.packet.packet_fabrics import leaf_spine

from syncline.errors import SimulationError
from syncline.sim.packet import PacketOptions, incast
from syncline.sim.packet.loaded import least_s, read_background, simulate_loaded
from syncline.sim.packet.traffic import SIZES


def test_background_is_drawn_longer_until_the_rest_is_done() -> None:
    network = leaf_spine()
    load = incast(network.fabric, 8, 200e3)
    bound = least_s(network, load)
    assert bound == pytest.approx(8 * 200e3 / 50e9, rel=0.2)
    outcome = simulate_loaded(network, [load], PacketOptions("dctcp"), read_background("0.2:hadoop"), bound / 50)
    assert outcome.done(0)
    assert outcome.jobs[1].start_s.max() > 0.5 * outcome.job_end_s(0)  # type: ignore[union-attr]
    parts = [outcome.tally(0), outcome.tally(1)]
    assert sum(part["marks"] for part in parts) == outcome.counters["marks"] > 0
    assert sum(part["resent"] for part in parts) == outcome.counters["resent_packets"]


def test_sizes_have_the_mean_they_say() -> None:
    means = {name: sizes.mean_bytes for name, sizes in SIZES.items()}
    assert means["websearch"] == pytest.approx(1.7e6, rel=0.1)
    assert means["hadoop"] < means["storage"] < means["websearch"]
    assert all("SIGCOMM" in sizes.source or sizes.source.startswith("ours") for sizes in SIZES.values())


def test_a_background_that_cannot_be_read_says_so() -> None:
    with pytest.raises(SimulationError, match=r'background "lots" has no load between 0 and 1\.'):
        read_background("lots")


def test_a_background_that_outlasts_the_rest_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.sim.packet.loaded._TRIES", 2)
    network = leaf_spine()
    load = incast(network.fabric, 8, 200e3)
    expected_s = 5 * least_s(network, load)
    outcome = simulate_loaded(network, [load], PacketOptions("dctcp"), read_background("0.2:hadoop"), expected_s)
    assert outcome.done(0)
    assert outcome.jobs[1].start_s.max() <= 2 * expected_s  # type: ignore[union-attr]
