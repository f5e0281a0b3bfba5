"""Named parameter sets: every one has a source, and its numbers reach the engine in the engine's units."""

from __future__ import annotations

import pytest

from syncline.errors import SimulationError
from syncline.sim.packet import Marks, transport_set, transport_sets
from syncline.sim.packet.parameters import KINDS, read_set
from syncline.sim.packet.run import mark_bytes


def profile(name: str, **changes):
    found = transport_set(name, changes or None)
    return found.profile(payload_bytes=4096, rate_Bps=50e9, rtt_s=8e-6, data_class=1)


@pytest.mark.parametrize("name", sorted(transport_sets()))
def test_every_set_says_where_it_comes_from(name: str) -> None:
    found = transport_sets()[name]
    assert len(found.source) > 20
    assert found.about
    assert profile(name).transport == KINDS.index(found.kind)
    assert not (found.spread == "packet" and found.recovery == "go-back-n")


def test_all_laws_have_a_set() -> None:
    assert {found.kind for found in transport_sets().values()} == set(KINDS) - {"custom"}  # a law of the user's


def test_acknowledgements_go_ahead_of_data_or_with_it() -> None:
    assert (profile("dctcp").ack_class, profile("dctcp", acks_with_data=True).ack_class) == (0, 1)


def test_numbers_are_scaled_to_the_network() -> None:
    dcqcn = profile("dcqcn")
    assert dcqcn.rate_timer_ps == 55_000_000
    assert dcqcn.additive_Bps == pytest.approx(0.001 * 50e9)
    assert dcqcn.gain == 1 / 256
    assert profile("dcqcn-hpcc").additive_Bps == pytest.approx(50e6 / 8)
    assert profile("hpcc").window_bytes == pytest.approx(50e9 * 8e-6)
    swift = profile("swift")
    assert swift.target_ps == 4_000_000
    assert swift.hop_ps == 2_000_000  # of four links
    assert profile("dctcp").window_bytes == 10 * 4096
    assert profile("dctcp", gain=0.5).gain == 0.5
    assert profile("ndp", timeout="3ms").timeout_ps == 3_000_000_000


def test_thresholds_are_times_or_round_trips() -> None:
    assert mark_bytes(Marks(16e-6, 64e-6), 50e9, 8e-6) == (800_000, 3_200_000)  # SimAI's at 400 Gb/s
    assert mark_bytes(Marks(step_bdp=0.25), 50e9, 8e-6) == (100_000, 100_000)


def test_a_wrong_row_is_refused() -> None:
    with pytest.raises(SimulationError, match=r'kind "magic" is not one of line, dcqcn'):
        read_set("mine", {"kind": "magic", "recovery": "selective"})
    with pytest.raises(SimulationError, match=r'transport "mine" has no parameter "colour"'):
        read_set("mine", {"kind": "line", "recovery": "selective", "colour": 3})
