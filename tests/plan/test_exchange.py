"""Algorithm and bucket: latency favours trees, few ranks favour rings, buckets grow with latency."""

from __future__ import annotations

from dataclasses import replace

from syncline.fabric import load
from syncline.plan.decision import Decision
from syncline.plan.exchange import choose_exchange, exchange_times
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric

MACHINE = machine_from_fabric(load("h100-64-rail"))
K = default_constants()


def decision(tp: int, dp: int) -> Decision:
    return Decision(tp, 1, dp, 1, 1, 1, 1, 1, "1", "1f1b", "none", False, False, True, False)


def test_one_replica_has_nothing_to_exchange() -> None:
    assert choose_exchange(decision(8, 1), 1e9, MACHINE, K) is None
    assert choose_exchange(decision(8, 8), 0.0, MACHINE, K) is None


def test_large_messages_go_round_a_ring_and_small_ones_up_a_tree() -> None:
    large = exchange_times(1e12, 64, 1, MACHINE, K)
    small = exchange_times(1e4, 64, 1, MACHINE, K)
    assert large["ring"] < large["tree"]
    assert small["tree"] < small["ring"]


def test_buckets_grow_with_latency() -> None:
    near = choose_exchange(decision(8, 64), 8e9, MACHINE, K)
    far = choose_exchange(decision(8, 64), 8e9, replace(MACHINE, hop_s=1e-3), K)
    assert near is not None and far is not None
    assert far.bucket_bytes > near.bucket_bytes
    assert min(near.by_algorithm_s.values()) == near.bucket_s


def test_inside_a_domain_there_is_only_the_ring() -> None:
    found = choose_exchange(decision(1, 8), 1e9, MACHINE, K)
    assert found is not None
    assert found.algorithm == "ring"
