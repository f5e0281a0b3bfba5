"""What was lost is found again, repeats included, and congestion control cuts once for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples.published.dumbbell import Dumbbell, dumbbell_trial
from tests.sim.packet.packet_fabrics import leaf_spine

from syncline.fabric import build
from syncline.fabric.spec import ClusterSpec
from syncline.sim.packet import PacketNetwork, PacketOptions, messages, packet_network, senders, simulate

GBIT = 1.25e8


@pytest.mark.parametrize("access_gbit", [40, 11, 10])
@pytest.mark.parametrize("flows", [2, 4])
def test_cubic_flows_share_a_full_trunk_and_lose_hundreds_not_tens_of_thousands(access_gbit: int, flows: int) -> None:
    """A lost repeat used to leave a flow stuck while it sent on: 73,789 drops, shares of 0.95 and 0.00."""
    options = PacketOptions("cubic", buffer_bytes=300e3, payload_bytes=1434)
    shape = Dumbbell(flows, access_gbit * GBIT, 10 * GBIT)
    found = dumbbell_trial(options, shape, settle_s=50e-3, measure_s=100e-3)
    assert found.utilisation > 0.99
    assert found.jain > 0.95
    assert 10 < found.outcome.counters["drops"] < 1500
    assert found.outcome.counters["timeouts"] == 0


def test_one_cubic_flow_drops_hundreds_of_packets() -> None:
    options = PacketOptions("cubic", buffer_bytes=300e3, payload_bytes=1434)
    found = dumbbell_trial(options, Dumbbell(1, 40 * GBIT, 10 * GBIT), settle_s=50e-3, measure_s=100e-3)
    assert 10 < found.outcome.counters["drops"] < 500
    assert found.utilisation > 0.99


def test_four_dctcp_flows_that_lose_packets_share() -> None:
    """Marks switched off: DCTCP is Reno then, and lives by its losses."""
    options = PacketOptions("dctcp", buffer_bytes=300e3, payload_bytes=1434, changes={"marks": None})  # type: ignore[dict-item]
    found = dumbbell_trial(options, Dumbbell(4, 40 * GBIT, 10 * GBIT), settle_s=50e-3, measure_s=100e-3)
    assert found.outcome.counters["drops"] > 100
    assert found.jain > 0.95
    assert found.utilisation > 0.97


def _of_line(recovery: str, loss: float) -> float:
    network = leaf_spine()
    ends = senders(network.fabric)
    changes: Any = {"recovery": recovery, "ack_every": 1, "timeout": "200us"}
    options = PacketOptions("line-rate", lossless=False, loss=loss, changes=changes, seed=2)
    outcome = simulate(network, [messages(ends[0], ends[8], 100e6)], options)
    assert outcome.counters["delivered_bytes"] == 100e6
    return 100e6 / outcome.end_of_run_s / 50e9


@pytest.mark.parametrize("loss", [0.0025, 0.02])
def test_selective_repeat_loses_what_is_lost_and_little_more(loss: float) -> None:
    """Four links: a share of (1 - loss)^4 arrives, less headers. It was 0.34 at one in a hundred."""
    assert _of_line("selective", loss) > (0.97 if loss < 0.01 else 0.88) * (1 - loss) ** 4 * 4096 / 4162


def test_go_back_n_loses_a_flight_a_loss() -> None:
    """About 30 packets are out, so one loss in a hundred costs 0.3 of the line, and a lost repeat a timeout."""
    assert 0.3 < _of_line("go-back-n", 0.0025) < 0.75


def test_the_timer_runs_from_the_oldest_packet_not_the_last_sent() -> None:
    """Go-back-N whose first repeat is lost must not send on for ever: at most a timeout's packets go to waste each."""
    network = leaf_spine()
    ends = senders(network.fabric)
    changes: Any = {"ack_every": 1, "timeout": "200us"}
    options = PacketOptions("line-rate", lossless=False, loss=0.0025, changes=changes, seed=2)
    counters = simulate(network, [messages(ends[0], ends[8], 100e6)], options).counters
    flight, wasted = 60, 200e-6 * 50e9 / 4162
    assert counters["timeouts"] > 0
    assert counters["resent_packets"] < flight * counters["errors"] + 1.5 * wasted * counters["timeouts"]


def test_the_last_packets_of_a_message_do_not_wait_for_the_timer() -> None:
    """A probe two round trips later shows what is missing of a tail (RFC 8985); the timer would be 5 ms each."""
    network = leaf_spine()
    ends = senders(network.fabric)
    load = messages(ends[0], ends[8], np.full(200, 60_000), np.arange(200) * 10e-3, connections="shared")
    times = {}
    for probe in (True, False):
        options = PacketOptions("dctcp", loss=0.002, seed=5, changes={"tail_probe": probe})
        outcome = simulate(network, [load], options)
        times[probe] = np.sort(outcome.times_s(0))
        assert outcome.counters["errors"] > 10
    assert times[False][-1] > 5e-3
    assert times[True][-1] < 1e-3


def test_irn_finds_losses_at_once_and_go_back_n_pays_a_flight() -> None:
    network = leaf_spine()
    ends = senders(network.fabric)
    times = {
        transport: simulate(
            network, [messages(ends[0], ends[8], 50e6)], PacketOptions(transport, loss=1e-3, seed=3)
        ).end_of_run_s
        for transport in ("irn", "irn-go-back-n")
    }
    assert times["irn"] < 0.95 * times["irn-go-back-n"]


def between_sites(*hosts: int, pattern: str = "mesh") -> PacketNetwork:
    """Sites of hosts with one GPU each, 6 ms apart."""
    one = {"model": "dgx-h100", "gpus": 1, "nics": 1}
    rows = [{"name": f"s{n}", "hosts": h, "host": one, "network": "fat-tree NDR"} for n, h in enumerate(hosts)]
    wan = {"rate": "400Gbps", "latency": "6ms", "pattern": pattern}
    return packet_network(build(ClusterSpec.model_validate({"sites": rows, "wan": wan})))


@pytest.mark.parametrize("transport", ["infiniband", "irn", "irn-go-back-n", "dctcp", "swift", "ndp"])
def test_nothing_is_sent_again_over_a_long_line_that_loses_nothing(transport: str) -> None:
    """The way and back is 12 ms, and timers are of 0.1 to 5 ms: all of it went twice or more, without a drop."""
    network = between_sites(2, 1)
    a, _, b = senders(network.fabric)
    counters = simulate(network, [messages(a, b, 256 * 1024)], PacketOptions(transport)).counters
    assert counters["delivered_bytes"] == 256 * 1024
    assert (counters["timeouts"], counters["resent_packets"], counters["drops"]) == (0, 0, 0)


@pytest.mark.parametrize(("to", "way_s", "timer_s"), [(1, 1e-6, 4e-3), (2, 6.003e-3, 3 * 2 * 6.003e-3)])
def test_the_first_loss_of_a_connection_waits_for_its_own_way(to: int, way_s: float, timer_s: float) -> None:
    """Three times the way and back, as after RFC 6298's first measurement; beside it a short way keeps its 4 ms."""
    network = between_sites(2, 1)
    ends = senders(network.fabric)
    options = PacketOptions("line-rate", lossless=False, loss=0.3, seed=0)
    outcome = simulate(network, [messages(ends[0], ends[to], 1024)], options)
    counters = outcome.counters
    assert (counters["data_packets"], counters["errors"], counters["timeouts"]) == (1, 1, 1)
    assert outcome.end_of_run_s == pytest.approx(timer_s + way_s, rel=1e-3)


def test_a_small_site_counts_in_the_base_round_trip() -> None:
    """Two sites of one host around a large one: two lines there and two back, where one of the two was not seen."""
    assert between_sites(40, 1, 1, pattern="star").rtt_s(4096) == pytest.approx(4 * 6e-3, rel=1e-3)
