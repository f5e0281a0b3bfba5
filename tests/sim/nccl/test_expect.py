from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import SimulationError
from syncline.fabric import build
from syncline.fabric.spec import ClusterSpec
from syncline.program import place
from syncline.sim.nccl.constants import default_constants
from syncline.sim.nccl.describe import from_placement
from syncline.sim.nccl.expect import expected_us
from syncline.sim.nccl.graph import search
from syncline.sim.nccl.job import NcclOperation, Scale, pipe
from syncline.sim.nccl.measured import bus_factor
from syncline.sim.nccl.system import NcclSystem

MIB = 2.0**20
A100 = NcclSystem(gpu="a100", num_hosts=1, gpus_per_host=8)
ACROSS = NcclSystem(gpu="a100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=25e9, network="infiniband")
NET = default_constants().networks["infiniband"]
MACHINE = default_constants().machine


def one(system: NcclSystem, op: str, pair: tuple[str, str], size: float) -> float:
    return float(expected_us(NcclOperation(system, op), pair, np.array([size]))[0])


def test_pipe_cross_term_stops_at_its_cap() -> None:
    sizes = np.array([MIB, 4 * MIB])
    got = pipe(10.0, np.array([40.0, 160.0]), 0.5, MIB, sizes)
    assert got == pytest.approx([10 + 40 + sqrt(400), 10 + 160 + sqrt(10 * 160 / 4)])


def test_ring_simple_on_one_host() -> None:
    bytes_us = 2**30 * 14 / 8 / (240 * MACHINE.nvlink_efficiency[1] * 1e3)
    latency = 3.4 * 14
    expected = 8.4 + latency + bytes_us + 2 * MACHINE.one_host_pipeline * sqrt(latency * bytes_us * 0.25)
    assert one(A100, "all_reduce", ("Ring", "Simple"), 2**30) == pytest.approx(expected)


def test_ring_simple_across_is_paced_by_the_network_hop() -> None:
    hop = NET.simple_hop_us
    small = one(ACROSS, "all_reduce", ("Ring", "Simple"), 1024)
    assert small == pytest.approx(
        8.4 + 62 * MACHINE.ring_small_share * hop, rel=1e-3
    )  # what small chunks cost at least
    chunk = 2**33 / 32 / 16 / 1024  # KiB for each of 16 channels
    latency = 62 * hop * chunk**2 / (chunk**2 + MACHINE.ring_chunk_KiB**2)
    bytes_us = 2**33 * 62 / 32 / (8 * 25 * NET.efficiency * 1e3)
    expected = 8.4 + (latency**NET.overlap + bytes_us**NET.overlap) ** (1 / NET.overlap)
    assert one(ACROSS, "all_reduce", ("Ring", "Simple"), 2**33) == pytest.approx(expected)


def test_a_ring_leaves_a_host_once_in_every_p_steps() -> None:
    def far(hosts: int, gpus: int, op: str) -> int:
        return NcclOperation(replace(ACROSS, num_hosts=hosts, gpus_per_host=gpus), op).inter

    assert [far(2, 8, op) for op in ("all_gather", "all_reduce")] == [2, 4]
    assert [far(128, 4, op) for op in ("reduce_scatter", "all_reduce")] == [128, 256]
    assert [far(5, 1, op) for op in ("all_gather", "all_reduce")] == [4, 8]  # every step of one GPU a host
    assert far(3, 2, "all_reduce") == 5


def test_a_small_all_gather_grows_by_the_host() -> None:
    """Polaris with software matching: 65, 248 and 16,970 us on 2, 8 and 540 hosts of four A100."""
    system = replace(ACROSS, gpus_per_host=4, num_nics=2, network="slingshot-rendezvous")
    for hosts, measured in ((2, 65), (8, 248), (540, 16970)):
        found = one(replace(system, num_hosts=hosts), "all_gather", ("Ring", "LL"), 64 * hosts)
        assert found == pytest.approx(measured, rel=0.15)


def test_tree_ll_counts_up_and_down() -> None:
    hop = NET.hop_us
    latency = 6.8 + 2 * (7 * MACHINE.intra_ll_us[1] + 2 * hop) + 2 * NET.channel_us  # PCIe Gen4: twice the copying
    assert one(ACROSS, "all_reduce", ("Tree", "LL"), 8) == pytest.approx(latency, rel=0.01)


def test_levels_of_a_tree_past_the_first_have_two_children() -> None:
    def small(hosts: int, level: float) -> float:
        constants = default_constants().with_network("slingshot", tree_level=level)
        job = NcclOperation(replace(ACROSS, num_hosts=hosts, network="slingshot"), "all_reduce", constants)
        return float(expected_us(job, ("Tree", "LL"), np.array([8.0]))[0])

    hop = 2 * default_constants().networks["slingshot"].hop_us
    assert small(2, 2.0) == small(2, 1.0)
    assert small(16, 1.0) - small(8, 1.0) == pytest.approx(hop, rel=0.01)
    assert small(16, 2.0) - small(8, 2.0) == pytest.approx(2 * hop, rel=0.01)


def test_a_pipeline_of_nvls_trees_fills_by_levels_not_by_hosts() -> None:
    def large(hosts: int) -> float:
        job = NcclOperation(replace(ACROSS, gpu="h100", num_hosts=hosts), "all_reduce")
        return float(expected_us(job, ("NVLSTree", "Simple"), np.array([2.0**28]))[0])

    assert large(32) - large(16) == pytest.approx(large(16) - large(8), rel=0.5)
    assert large(64) < 1.5 * large(4)


def test_a_two_host_tree_sends_half_of_what_a_larger_one_does() -> None:
    few = NcclSystem(gpu="a100", num_hosts=4, gpus_per_host=8, num_nics=4, nic_rate_Bps=12.5e9, network="infiniband")
    two = one(replace(few, num_hosts=2), "all_reduce", ("Tree", "Simple"), 2**34)
    assert one(few, "all_reduce", ("Tree", "Simple"), 2**34) / two == pytest.approx(2, rel=0.02)


def test_nvls_bandwidth_by_number_of_gpus() -> None:
    # Published: 8 GiB on 5..8 H200 gives 414, 436, 460, 473 GB/s of bus bandwidth.
    for gpus, busbw in ((5, 414), (6, 436), (7, 460), (8, 473)):
        system = NcclSystem(gpu="h200", num_hosts=1, gpus_per_host=gpus)
        time_us = one(system, "all_reduce", ("NVLS", "Simple"), 2**33)
        assert 2**33 / time_us / 1e3 * 2 * (gpus - 1) / gpus == pytest.approx(busbw, rel=0.03)


def test_a_ring_never_beats_the_wire() -> None:
    for op, share in (("all_reduce", 62 / 32), ("all_gather", 31 / 32), ("all_to_all", 24 / 32 * 8)):
        pair = ("P2P", "Simple") if op == "all_to_all" else ("Ring", "Simple")
        assert one(ACROSS, op, pair, 2**34) >= 2**34 * share / (8 * 25e3) * 0.999


def test_launches_from_one_process_and_timed_calls_cost_extra() -> None:
    plain = one(A100, "all_reduce", ("Ring", "LL"), 8)
    driven = NcclSystem(gpu="a100", num_hosts=1, gpus_per_host=8, gpus_per_process=8, call_us=22)
    launch = 8 * MACHINE.launch_us_per_gpu
    paced = one(driven, "all_reduce", ("Ring", "LL"), 8) - 22
    assert max(plain, launch) < paced < plain + launch
    large = 2.0**33
    assert one(driven, "all_reduce", ("Ring", "Simple"), large) == pytest.approx(
        one(A100, "all_reduce", ("Ring", "Simple"), large) + 22, rel=1e-6
    )


def test_scale_multiplies_what_it_names() -> None:
    slow = float(
        expected_us(
            NcclOperation(ACROSS, "all_reduce", scale=Scale(simple_hop=2)), ("Ring", "Simple"), np.array([8.0])
        )[0]
    )
    plain = one(ACROSS, "all_reduce", ("Ring", "Simple"), 8)
    assert slow - 8.4 == pytest.approx(2 * (plain - 8.4))


def test_a_pair_without_formula_is_an_error() -> None:
    with pytest.raises(SimulationError, match="no formula for NVLS/LL"):
        one(A100, "all_reduce", ("NVLS", "LL"), 8)


PAIRS = [("Ring", "LL"), ("Ring", "LL128"), ("Ring", "Simple"), ("Tree", "LL"), ("Tree", "LL128"), ("Tree", "Simple")]


@given(st.sampled_from(PAIRS), st.integers(1, 40), st.integers(3, 33))
def test_time_is_positive_and_more_bytes_take_longer(pair: tuple[str, str], hosts: int, log_size: int) -> None:
    system = replace(ACROSS, num_hosts=hosts)
    small, large = expected_us(
        NcclOperation(system, "all_reduce"), pair, np.array([2.0**log_size, 2.0 ** (log_size + 1)])
    )
    assert 0 < small <= large * 1.0001


def test_send_and_receive_gain_a_channel_for_every_64_MiB() -> None:
    system = NcclSystem(gpu="b200", num_hosts=1, gpus_per_host=8)
    small, middle, large = (one(system, "send_recv", ("P2P", "Simple"), 2.0**e) for e in (26, 28, 33))
    assert middle == pytest.approx(small, rel=0.1)
    assert 2**33 / large / 1e3 > 500 > 100 > 2**26 / small / 1e3


def test_nothing_inside_a_host_is_faster_than_nvlink() -> None:
    system = NcclSystem(gpu="b200", num_hosts=1, gpus_per_host=8)
    for op in ("all_to_all", "send_recv"):
        time_us = one(system, op, ("P2P", "Simple"), 2.0**34)
        assert 2**34 * bus_factor(op, 8) / time_us / 1e3 < system.nvlink_GBps


def test_ll_buffers_cost_more_over_older_pcie() -> None:
    new = NcclSystem(gpu="h100", num_hosts=2, gpus_per_host=8, num_nics=8, nic_rate_Bps=25e9)
    old = replace(new, pcie_Bps=24e9)
    assert one(old, "all_reduce", ("Tree", "LL"), 2.0**16) > 1.1 * one(new, "all_reduce", ("Tree", "LL"), 2.0**16)


def test_sharp_pays_for_the_network() -> None:
    alone = NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=8)
    across = NcclSystem(gpu="h100", num_hosts=16, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, collnet=True)
    for size in (8.0, 2.0**33):
        assert one(across, "all_reduce", ("NVLS", "Simple"), size) > one(alone, "all_reduce", ("NVLS", "Simple"), size)


@pytest.mark.parametrize(
    ("hosts", "nccl", "GBps"),
    [(2, (2, 29), 45.0), (8, (2, 29), 34.0), (16, (2, 29), 17.0), (2, (2, 28), 34.0), (8, (2, 28), 17.0)],
)  # fmt: skip
def test_a_remote_peer_has_fewer_channels_the_more_ranks_there_are(
    hosts: int, nccl: tuple[int, int], GBps: float
) -> None:
    many = NcclSystem(
        gpu="b200", num_hosts=hosts, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network="infiniband", nccl=nccl
    )
    size = 2.0**33
    assert size / one(many, "send_recv", ("P2P", "Simple"), size) / 1e3 == pytest.approx(GBps, rel=0.05)


@pytest.mark.parametrize(
    ("op", "algorithm", "hosts", "ranks", "lines"),
    [
        ("all_reduce", "Ring", (2, 2), 32, 4),  # two passes, there and back
        ("all_gather", "Ring", (2, 2), 32, 2),  # one: with reduce-scatter as long as an all-reduce
        ("reduce_scatter", "Ring", (2, 2), 32, 2),
        ("broadcast", "Ring", (2, 2), 32, 2),  # back to the root's host, to ranks behind it
        ("reduce", "Ring", (2, 2), 32, 2),
        ("broadcast", "Ring", (2, 2), 4, 1),  # one rank a host: nobody is behind the root
        ("reduce", "Ring", (2, 2), 4, 1),
        ("all_gather", "PAT", (2, 2), 4, 2),
        ("all_reduce", "Tree", (1, 1), 16, 2),  # up and down the one line
        ("all_reduce", "Tree", (2, 2), 32, 4),  # 1 to 2 to 0, and back
        ("all_reduce", "NVLSTree", (3, 3), 48, 6),  # 3 to 2 to 4 to 0, and back
        ("all_reduce", "Tree", (1, 3), 32, 2),  # 1 to 2 to 0, and back
        ("all_to_all", "P2P", (2, 2), 32, 1),
    ],
)
def test_lines_between_sites_are_passed_so_often(
    op: str, algorithm: str, hosts: tuple[int, int], ranks: int, lines: int
) -> None:
    """Once four latencies for every operation of a ring and two for every tree."""
    times = []
    for latency in ("0ms", "10ms"):
        rows = [
            {"name": name, "hosts": count, "host": "dgx-h100", "network": "rail-optimized NDR"}
            for name, count in zip("ab", hosts, strict=True)
        ]
        spec = ClusterSpec.model_validate({"sites": rows, "wan": {"rate": "400Gbps", "latency": latency}})
        system = from_placement(place("spread", build(spec), ranks))
        times.append(one(system, op, (algorithm, "Simple"), 2**26))
    assert times[1] - times[0] == pytest.approx(lines * 10_000)


def test_inner_nodes_of_wide_nvls_trees_pass_everything_twice() -> None:
    """Three domains of 64 GPUs whose NICs do not limit take twice as long as two do; latencies are a hundredth."""
    wide = NcclSystem(gpu="gb200", num_hosts=2, gpus_per_host=64, num_nics=64, nic_rate_Bps=1e15, network="infiniband")
    two, three = (one(replace(wide, num_hosts=n), "all_reduce", ("NVLSTree", "Simple"), 2**40) for n in (2, 3))
    assert three / two == pytest.approx(2, rel=0.02)


def test_one_host_runs_at_least_eight_channels() -> None:
    few = NcclSystem(gpu="l40s", num_hosts=1, gpus_per_host=2)
    many = NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=8)
    assert NcclOperation(few, "all_reduce").graphs.ring.num_channels < 8 == NcclOperation(few, "all_reduce").channels
    assert NcclOperation(many, "all_reduce").channels == search(many).ring.num_channels == 12
