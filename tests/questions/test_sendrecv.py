"""Send and receive as nccl-tests' sendrecv_perf does: every rank sends its buffer to the next one."""

from __future__ import annotations

import pytest

import syncline
from syncline.schedule import Kind, build, verify
from syncline.schedule.collective import Collective

SIZE = 64 * 2**20
CARDS = {"gpu": "H100", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "link": "NDR"}


@pytest.mark.parametrize("hosts", [2, 5])
def test_every_port_carries_one_buffer_each_way(hosts: int) -> None:
    """64 MiB over a port of 50 GB/s, of which RDMA leaves 95 %: 1,413 us, however many hosts pass theirs on."""
    cluster = {"hosts": hosts, "host": CARDS, "network": "fat-tree NDR"}
    flow = syncline.simulate(cluster, "sendrecv", SIZE, algorithm="best")
    assert flow.time_s == pytest.approx(SIZE / (50e9 * 0.95), rel=0.01)
    assert flow.rows[0].busbw_Bps == flow.rows[0].algbw_Bps  # nccl-tests counts no factor here
    assert flow.rows[0].bound_s == pytest.approx(SIZE / 50e9)
    packets = syncline.simulate(cluster, "sendrecv", SIZE, level="packet")
    assert packets.time_s == pytest.approx(flow.time_s, rel=0.1)
    nccl = syncline.simulate(cluster, "sendrecv", SIZE, algorithm="nccl").rows[0]
    assert nccl.bound_s == pytest.approx(SIZE / 50e9)
    assert nccl.low_s is not None and SIZE / 50e9 <= nccl.low_s <= nccl.time_s


def test_a_send_without_a_peer_goes_to_the_next_rank() -> None:
    goal = Collective(Kind.SEND_RECV, 4)
    assert (goal.givers(4).tolist(), goal.takers(4).tolist()) == ([0, 1, 2, 3], [1, 2, 3, 0])
    assert goal.total_bytes(10) == 40
    assert verify(build("direct", 4, kind=Kind.SEND_RECV)).schedule.collective == goal
