"""The bound of a collective: worked out by hand, below everything that is executed, and below NCCL's model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.questions.simulated.rows import CollectiveRow
from syncline.schedule import Kind
from syncline.sim.bound import bound_of
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import predict

GIB = 2.0**30


def joined(hosts: tuple[int, ...] = (8, 6, 3), latency: str = "7ms", pattern: str = "mesh", **more: Any) -> Fabric:
    sites = [
        {"name": name, "hosts": count, "host": "dgx-h100", "network": "rail-optimized NDR"}
        for name, count in zip("abcdef", hosts, strict=False)
    ]
    wan = {"rate": "800Gbps", "latency": latency, "pattern": pattern}
    return build(ClusterSpec.model_validate({"sites": sites, "wan": wan, **more}))


def test_two_sites_of_three_exchange_over_their_own_line() -> None:
    """64 and 48 of 136 GPUs exchange 64 x 48 / 136 GiB: 24.25 GB over 100 GB/s. A relay at the third could spare some.

    The larger sends 64 x 72 / 136 GiB over its two lines however that is divided.
    """
    fabric = joined(latency="0s")
    straight = bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus, direct=True).at(GIB)
    assert straight == pytest.approx(64 * 48 / 136 * GIB / 100e9) == pytest.approx(0.24254, rel=1e-4)
    assert bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus).at(GIB) == pytest.approx(64 * 72 / 136 * GIB / 200e9)


def test_the_hub_of_a_star_carries_what_others_exchange() -> None:
    """The line of the second site carries what it sends to both others: 48 x 88 / 136 GiB."""
    fabric = joined(latency="0s", pattern="star")
    straight = bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus, direct=True).at(GIB)
    assert straight == pytest.approx(48 * 88 / 136 * GIB / 100e9)


def test_a_ring_of_four_sites_has_two_ways_to_the_far_one() -> None:
    """Neighbours exchange 16 x 16 / 64 buffers over their line; the far site can be reached over either side."""
    fabric = joined((2, 2, 2, 2), latency="0s", pattern="ring")
    straight = bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus, direct=True)
    cut = 16 * 48 / 64 / 200e9
    assert straight.at(GIB) == pytest.approx(GIB * max(16 * 16 / 64 / 100e9, cut))


def test_a_failed_line_sends_its_traffic_around() -> None:
    whole, failed = joined(latency="5ms"), joined(latency="5ms", faults=[{"link": "a/border <-> b/border"}])
    bounds = [bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus, direct=True) for fabric in (whole, failed)]
    assert bounds[0].at(1.0) == pytest.approx(5e-3, rel=1e-6)
    assert bounds[1].at(1.0) == pytest.approx(10e-3, rel=1e-6)  # over the third site
    assert bounds[1].at(GIB) == pytest.approx(5e-3 + 64 * 72 / 136 * GIB / 100e9)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [(Kind.ALL_REDUCE, 2), (Kind.ALL_GATHER, 2), (Kind.ALL_TO_ALL, 2), (Kind.BROADCAST, 1), (Kind.SEND_RECV, 1)],
)
def test_nothing_is_faster_than_its_way(kind: Kind, lines: int) -> None:
    """Of a star the far sites are two lines apart; a root at the hub reaches both over one."""
    fabric = joined(pattern="star")
    assert bound_of(fabric, kind, fabric.gpus, to_next=True).at(1.0) == pytest.approx(lines * 7e-3, rel=1e-6)
    assert bound_of(fabric, kind, fabric.gpus).at(0.0) == 0.0


def ends(row: CollectiveRow) -> list[float]:
    """Return the bound, both low ends of the interval and the time; each is at least the one before."""
    return [part for part in (row.bound_s, row.low_s, row.low50_s, row.time_s) if part is not None]


def test_nccl_keeps_to_the_line_and_to_its_latency() -> None:
    """Once 203 ms where one line needs 242.5, and an interval from 6.8 ms over a line of 7."""
    row = syncline.simulate(joined(latency="0s"), "alltoall", "1GiB", algorithm="nccl").rows[0]
    assert row.bound_s == pytest.approx(0.24254, rel=1e-4)
    assert sorted(ends(row)) == ends(row)
    far = syncline.simulate(joined(), "alltoall", "1KiB", algorithm="nccl").rows[0]
    assert ends(far)[0] > 7e-3 and sorted(ends(far)) == ends(far)
    assert syncline.simulate(joined(pattern="star"), "alltoall", "1KiB", algorithm="nccl").time_s > 14e-3


def drawn(seed: int) -> Fabric:
    draw = random.Random(seed)
    host = draw.choice(("dgx-h100", "dgx-a100", {"gpu": "H100", "gpus": 4, "nics": 2, "nic": "ConnectX-7"}))
    network = draw.choice(("leaf-spine NDR 2:1", "rail-optimized HDR", "fat-tree HDR"))
    if draw.random() < 0.5:
        return build(ClusterSpec.model_validate({"hosts": draw.randint(2, 6), "host": host, "network": network}))
    sites = [
        {"name": name, "hosts": draw.randint(1, 3), "host": host, "network": network}
        for name in "abcd"[: draw.randint(2, 4)]
    ]
    wan = {"rate": draw.choice(("100Gbps", "3.2Tbps")), "latency": draw.choice(("10us", "7ms")),
           "pattern": draw.choice(("mesh", "ring", "star"))}  # fmt: skip
    return build(ClusterSpec.model_validate({"sites": sites, "wan": wan}))


@pytest.mark.parametrize("seed", range(24))
def test_nccl_is_never_below_the_bound(seed: int) -> None:
    fabric = drawn(seed)
    system = from_fabric(fabric)
    sizes = np.array([2.0**power for power in range(10, 34, 4)])
    kinds = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.REDUCE)
    for kind in (*kinds, Kind.SEND_RECV):
        found = predict(system, kind.value, sizes)
        least_us = 1e6 * bound_of(fabric, kind, fabric.gpus, direct=True, to_next=True).at(sizes)
        assert (found.low_us >= least_us).all() and (found.low50_us >= least_us).all()
        assert (found.fastest_us >= least_us).all() and (found.time_us >= found.low_us).all()


@pytest.mark.parametrize("seed", range(8))
def test_messages_sent_straight_are_never_faster_than_their_bound(seed: int) -> None:
    fabric = drawn(seed)
    for size in (2**10, 2**28):
        took_s = syncline.simulate(fabric, "alltoall", size, algorithm="direct").time_s
        assert took_s >= bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus, direct=True).at(float(size)) * (1 - 1e-9)
