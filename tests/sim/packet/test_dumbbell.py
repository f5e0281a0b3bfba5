"""Every transport on a dumbbell: what of the trunk is used, how fairly, and how long the queue is against theory."""

from __future__ import annotations

import numpy as np
import pytest
from examples.published.dumbbell import Dumbbell, DumbbellResult, dumbbell_trial, jain_index

from syncline.sim.packet import PacketOptions, messages, simulate, transport_sets

SLOW = {"dcqcn": 40e-3, "dcqcn-hpcc": 40e-3, "dcqcn-simai": 40e-3, "timely": 40e-3}
"""What needs longer than 5 ms to settle, and how long."""
UNUSED = {"dctcp": 0.93, "hpcc": 0.90, "dcqcn": 0.93, "timely": 0.95}
"""What of the trunk must be used where not nearly all is: DCTCP marks at a sixth of a round trip, HPCC aims at 0.95."""
UNFAIR = {("timely", 16): 0.5, ("cubic", 16): 0.85, ("hpcc", 16): 0.90}
"""Jain's index below 0.97: TIMELY has no single fair point (Zhu et al., CoNEXT 2016), 16 CUBIC flows take seconds."""
NAMES = [name for name in transport_sets() if name not in ("slotted", "irn-go-back-n", "irn")]


def _trial(transport: str, shape: Dumbbell) -> DumbbellResult:
    settle_s = SLOW.get(transport, 5e-3)
    return dumbbell_trial(
        PacketOptions(transport, buffer_bytes=8e6),
        shape,
        settle_s=settle_s,
        measure_s=20e-3 if settle_s > 0.01 else 10e-3,
    )


@pytest.mark.parametrize("flows", [2, 4, 16])
@pytest.mark.parametrize("transport", NAMES)
def test_flows_fill_the_trunk_and_share_it(transport: str, flows: int) -> None:
    found = _trial(transport, Dumbbell(flows))
    assert UNUSED.get(transport, 0.99) < found.utilisation <= 1.0001
    assert found.jain > UNFAIR.get((transport, flows), 0.97)


@pytest.mark.parametrize("transport", [name for name in NAMES if name != "cubic"])
def test_late_starters_get_their_share(transport: str) -> None:
    assert _trial(transport, Dumbbell(4, start_s=(0.0, 0.0, 2e-3, 2e-3))).jain > 0.97


def test_a_cubic_flow_that_comes_late_gains_round_by_round() -> None:
    """Its epochs are milliseconds long at this rate: it is on its way after 15 and near its share after 200."""
    shape = Dumbbell(2, start_s=(0.0, 5e-3), access_Bps=5e9, trunk_Bps=1.25e9)
    options = PacketOptions("cubic", buffer_bytes=300e3, payload_bytes=1434)
    assert dumbbell_trial(options, shape, settle_s=200e-3, measure_s=200e-3).jain > 0.9


@pytest.mark.parametrize(
    ("transport", "least"),
    [("roce", 0.95), ("infiniband", 0.95), ("dcqcn", 0.95), ("dcqcn-hpcc", 0.95), ("hpcc", 0.95), ("srd", 0.95),
     ("uec", 0.80), ("cubic", 0.70), ("timely", 0.65), ("dctcp", 0.60)],
)  # fmt: skip
def test_unequal_round_trips_are_as_unfair_as_the_law(transport: str, least: float) -> None:
    """Two of four senders at six times the distance: laws by rate or pause do not care, windows do."""
    found = _trial(transport, Dumbbell(4, far=(1, 1, 6, 6)))
    assert least < found.jain
    assert found.utilisation > 0.94


@pytest.mark.parametrize("detours", [(0, 1), (0, 0, 1, 1), (0, 2)])
def test_swift_leaves_flows_over_more_switches_their_share(detours: tuple[int, ...]) -> None:
    """The scaling by hops used to be dead: one more switch left a flow a tenth of its share."""
    found = _trial("swift", Dumbbell(len(detours), detours=detours))
    assert found.shares.min() > 0.6 / len(detours)
    flat = dumbbell_trial(
        PacketOptions("swift", changes={"hop_share": 0.0, "target_bdp": 1.2}), Dumbbell(len(detours), detours=detours)
    )
    assert flat.shares.min() < found.shares.min()


@pytest.mark.parametrize("flows", [2, 4])
def test_queues_are_those_of_theory(flows: int) -> None:
    """DCTCP stays near K, Swift near its target, CUBIC fills the buffer, DCQCN lies between its marks."""
    near = Dumbbell(flows)
    rate, rtt = near.trunk_Bps, near.network().rtt_s(4096)
    assert _trial("dctcp", near).mean_queue_bytes < 0.1667 * rate * rtt + flows * 4162
    swift = _trial("swift", near)
    assert 0.4 * rate * rtt * 0.5 < swift.mean_queue_bytes < (0.5 + 2.0) * rate * rtt
    assert _trial("hpcc", near).mean_queue_bytes < 0.1 * rate * rtt
    assert 1e-6 * rate < _trial("dcqcn", near).mean_queue_bytes < 40e-6 * rate
    cubic = _trial("cubic", near)
    assert cubic.peak_queue_bytes == pytest.approx(8e6 / 2, rel=0.01)  # alpha 1: half of the shared buffer


@pytest.mark.parametrize("start_s", [0.0, 1e-6, 1e-3])
def test_dcqcn_heeds_the_first_notification_whenever_it_starts(start_s: float) -> None:
    """It used to ignore the first 50 us of a connection that began after 0: a queue of 221 KB or of 2,730."""
    shape = Dumbbell(4)
    load = messages([shape.sender(i) for i in range(4)], [shape.receiver(i) for i in range(4)], 20e6, start_s)
    outcome = simulate(shape.network(), [load], PacketOptions("dcqcn", seed=1))
    reference = simulate(shape.network(), [messages(load.src, load.dst, 20e6)], PacketOptions("dcqcn", seed=1))
    assert outcome.ports["peak_bytes"].max() == reference.ports["peak_bytes"].max()


@pytest.mark.parametrize(("transport", "worst"), [("dcqcn-hpcc", 2.0), ("dcqcn-simai", 2.2), ("timely", 1.1)])
def test_incast_under_the_reference_laws_is_near_the_bound(transport: str, worst: float) -> None:
    """Without the window and with the target clamped it was 7.9, 8.7 and up to 5.4 times the bound."""
    from tests.sim.packet.packet_fabrics import leaf_spine

    from syncline.sim.packet import incast

    network = leaf_spine(64, 8)
    outcome = simulate(network, [incast(network.fabric, 32, 2e6)], PacketOptions(transport))
    bound_s = 32 * 2e6 * 4162 / 4096 / 50e9
    assert bound_s < outcome.end_of_run_s < worst * bound_s


def test_a_short_message_does_not_wait_behind_a_long_one() -> None:
    """1 KB behind 100 MB took 1,941 us while both shared a connection."""
    shape = Dumbbell(2)
    ends = [shape.sender(0)] * 2, [shape.receiver(0)] * 2
    both = messages(*ends, [100e6, 1e3], [0.0, 1e-6])
    own = simulate(shape.network(), [both], PacketOptions("dcqcn")).times_s(0)
    shared = messages(*ends, [100e6, 1e3], [0.0, 1e-6], connections="shared")
    behind = simulate(shape.network(), [shared], PacketOptions("dcqcn")).times_s(0)
    assert own[1] < 10e-6
    assert behind[1] > 0.99 * behind[0]


def test_jain() -> None:
    assert jain_index(np.array([3.0, 3.0, 3.0])) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
