"""Links that fail, lose packets, and buffers that wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import leaf_spine, router_ring, star

from syncline.errors import SimulationError
from syncline.sim.packet import LinkChange, PacketOptions, Watching, messages, senders, simulate


def test_selective_repeat_beats_go_back_n_when_packets_are_lost() -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    ends = {}
    for recovery in ("go-back-n", "selective"):
        changes = {"recovery": recovery, "ack_every": 1, "timeout": "100us"}
        options = PacketOptions(transport="line-rate", lossless=False, loss=1e-3, changes=changes, seed=5)
        outcome = simulate(network, [messages(a, b, 40e6)], options)
        assert outcome.finished
        assert outcome.counters["errors"] > 10
        ends[recovery] = outcome
    back, selective = ends["go-back-n"], ends["selective"]
    assert selective.counters["resent_packets"] < 0.2 * back.counters["resent_packets"]
    assert selective.end_of_run_s < back.end_of_run_s


def test_a_failed_link_is_routed_around_and_comes_back() -> None:
    network = leaf_spine(16, 4)
    ends = senders(network.fabric)
    load = messages(ends[:4], ends[8:12], 20e6)
    links = [int(network.link[p]) for p in np.flatnonzero((network.src >= 0) & (network.dst >= 0))]
    healthy = simulate(network, [load], PacketOptions(transport="ndp"))
    half = [LinkChange(50e-6, link, 0.0, 20e-6) for link in links if network.src[network.port_of_link[link]] == 0][:3]
    failed = simulate(network, [load], PacketOptions(transport="ndp"), changes=half)
    repaired = [*half, *(LinkChange(150e-6, change.link, 1.0, 0.0) for change in half)]
    back = simulate(network, [load], PacketOptions(transport="ndp"), changes=repaired)
    assert failed.finished
    assert failed.counters["dead"] > 0
    assert healthy.end_of_run_s < back.end_of_run_s < failed.end_of_run_s


def test_a_slower_link_slows_what_crosses_it() -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    link = int(network.link[network.access_port[0]])
    outcome = simulate(
        network, [messages(a, b, 10e6)], PacketOptions(transport="line-rate"), changes=[LinkChange(0.0, link, 0.5)]
    )
    assert outcome.end_of_run_s == pytest.approx(10e6 * 4162 / 4096 / 25e9, rel=0.02)


def test_a_deadlock_is_found_and_named() -> None:
    """Everyone sends two routers on around a ring, lossless and without virtual lanes: it locks up."""
    network = router_ring()
    ends = senders(network.fabric)
    load = messages(ends, np.roll(ends, -2), 8e6)
    outcome = simulate(network, [load], PacketOptions(transport="roce", pause_bytes=9000))
    assert outcome.state == "deadlock"
    assert len(outcome.cycle) == 5
    assert all(" -> " in name for name in outcome.cycle)
    assert simulate(network, [load], PacketOptions(transport="dctcp")).finished


def test_bad_changes_are_refused() -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    with pytest.raises(SimulationError, match=r"link 999999 is not in the network"):
        simulate(network, [messages(a, b, 1e3)], changes=[LinkChange(0.0, 999_999)])


@pytest.mark.parametrize(
    ("watching", "text"),
    [
        (Watching(1e-6, flows=(1,)), r"cannot watch connection 1; there are 1\."),
        (Watching(0.0, flows=(0,)), "the time between two samples must be above 0"),
    ],
)
def test_what_cannot_be_watched_is_refused(watching: Watching, text: str) -> None:
    network = star()
    a, b = senders(network.fabric)[:2]
    with pytest.raises(SimulationError, match=text):
        simulate(network, [messages(a, b, 1e3)], watching=watching)
