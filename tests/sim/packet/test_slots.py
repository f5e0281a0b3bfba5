"""Time slots under clocks that are off, against hand arithmetic and against best effort."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import leaf_spine, star

from syncline.errors import SimulationError
from syncline.questions.simulated.packet_job import read_job
from syncline.sim.packet import PacketOptions, all_to_all, incast, messages, senders, simulate
from syncline.sim.packet.slots import compare_slots, slot_plan, with_slots

WIRE, ACK, RATE = 4096 + 66, 64, 50e9


def test_a_ring_by_hand() -> None:
    """Eight hosts on a switch: 14 rounds of a chunk, each waits for the one before and for a guard of 2 E."""
    network, error_s = star(8), 100e-9
    plan = slot_plan(network, read_job(network, "allreduce:1MiB:ring", 0), error_s)
    chunk = (1 << 20) // 8 // 4096  # packets: 32, acknowledged twice
    line_s = (chunk * WIRE + 2 * ACK) / RATE
    fabric = network.fabric
    path = network.routes.many(np.array([fabric.gpus[0]]), np.array([fabric.gpus[1]])).links
    round_s = float(fabric.links.latency_s[path].sum()) + line_s + WIRE / RATE  # a packet more at the second hop
    assert plan.end_s == pytest.approx(error_s + 14 * round_s + 13 * 2 * error_s, rel=1e-9)


def test_an_incast_by_hand_and_no_queue() -> None:
    """Eight messages of 1 MB follow each other into one link; the queue that best effort builds is gone."""
    network, error_s = star(9), 50e-9
    load = incast(network.fabric, 8, 1e6)
    found = compare_slots(network, load, PacketOptions("roce"), error_s, worse=(1.0, 40.0))
    packets = 245
    line_s = (1e6 + packets * 66 + 16 * ACK) / RATE
    ports = [int(network.access_port[1]), int(network.back[network.access_port[0]])]
    latency_s = float(network.latency_ps[ports].sum()) / 1e12
    assert found.plan.end_s == pytest.approx(error_s + 8 * line_s + 7 * 2 * error_s + latency_s + WIRE / RATE, rel=1e-9)
    kept, broken = found.scheduled
    assert kept.time_s == pytest.approx(found.plan.end_s, abs=2 * error_s + 1e-9)
    assert kept.deepest_queue_bytes <= 2 * WIRE < 1e6 < found.best_effort.deepest_queue_bytes
    assert broken.deepest_queue_bytes > 10 * WIRE


def test_clocks_within_their_error_make_nobody_late() -> None:
    network = leaf_spine()
    job = read_job(network, "allreduce:4MiB:ring", 0)
    found = compare_slots(network, job, PacketOptions("dcqcn"), 200e-9, worse=(1.0, 10.0))
    kept, broken = found.scheduled
    assert kept.late == 0 and broken.late > 0
    assert kept.deepest_queue_bytes <= 2 * WIRE
    assert found.break_even_s <= found.best_effort.time_s / 59  # 30 rounds: 29 guards of twice the error, and the start


def test_no_two_messages_of_a_port_are_nearer_than_the_guard() -> None:
    network, error_s = leaf_spine(), 1e-6
    load = all_to_all(network.fabric, 65536)
    plan = slot_plan(network, load, error_s)
    by_host = np.lexsort((plan.starts_s[0], load.src))
    gaps = np.diff(plan.starts_s[0][by_host])[np.diff(load.src[by_host]) == 0]
    assert gaps.min() >= (16 * WIRE + ACK) / RATE + 2 * error_s - 1e-12
    exact = simulate(network, [with_slots(load, plan, 0.0)], PacketOptions("line-rate"))
    assert exact.end_of_run_s == pytest.approx(plan.end_s, rel=2e-3)


def test_what_cannot_be_laid_is_refused() -> None:
    network = star(9)
    ends = senders(network.fabric)
    with pytest.raises(SimulationError, match="start times or an order of their own"):
        slot_plan(network, messages(ends[:2], ends[2:4], 1e5, [0.0, 1e-6]), 1e-7)
    with pytest.raises(SimulationError, match="no clock is exact"):
        compare_slots(network, incast(network.fabric, 2, 1e5), PacketOptions(), 0.0)
