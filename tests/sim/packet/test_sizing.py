"""The smallest buffer, found by runs."""

from __future__ import annotations

import pytest
from tests.sim.packet.packet_fabrics import leaf_spine, star

from syncline.errors import SimulationError
from syncline.sim.packet import PacketOptions, incast
from syncline.sim.packet.sizing import headroom_rows, size_buffers


def test_headroom_is_both_ways_of_the_cable_and_three_packets() -> None:
    (row,) = headroom_rows(star(), 4096)
    network = star()
    assert row.headroom_bytes == pytest.approx(2 * 50e9 * network.latency_ps[0] * 1e-12 + 3 * 4296, abs=1)
    assert row.response_bytes == 905 * 64  # of 400 Gb/s
    assert row.ports == 9


def test_the_answer_holds_and_a_smaller_buffer_does_not() -> None:
    network = leaf_spine()
    sizing = size_buffers(network, [incast(network.fabric, 12, 300e3)], PacketOptions("cubic"), within=0.05)
    good = [row for row in sizing.buffer_trials if row.time_s <= 1.05 * sizing.ideal_s]
    bad = [row for row in sizing.buffer_trials if row.time_s > 1.05 * sizing.ideal_s]
    assert min(row.buffer_bytes for row in good) == sizing.buffer_bytes
    assert bad and max(row.buffer_bytes for row in bad) < sizing.buffer_bytes
    assert not sizing.lossless and sizing.pause_bytes == 0


def test_a_tighter_bound_takes_no_less_and_lossless_includes_headroom() -> None:
    network = star()
    load = incast(network.fabric, 8, 300e3)
    loose, tight = (size_buffers(network, [load], PacketOptions("dctcp"), within=w) for w in (0.5, 0.02))
    assert tight.buffer_bytes >= loose.buffer_bytes
    assert tight.marks is None or tight.marks.low_s > 0
    roce = size_buffers(network, [load], PacketOptions("roce"))
    assert roce.lossless and roce.buffer_bytes > roce.headroom_bytes > 0
    assert all(row.drops == 0 for row in roce.buffer_trials)


def test_a_tolerance_must_be_one() -> None:
    with pytest.raises(SimulationError, match="the tolerance must be above 0"):
        size_buffers(star(), [incast(star().fabric, 8, 300e3)], PacketOptions("dctcp"), within=0)
