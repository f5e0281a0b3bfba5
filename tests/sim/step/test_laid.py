"""Groups laid on the links of a fabric whose hosts differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline import simulate
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.planning.answer import make_plan
from syncline.sim.step.collectives import priced_collectives
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.footprint import Rails, gather_flows
from syncline.sim.step.executed.stages import Stages
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

SLOW = {"link": "leaf-00 <-> host-01/nic-3", "rate": "50Gbps"}


def cluster(hosts: int = 6, host: str = "dgx-h100", link: str = "NDR", **more: Any) -> Fabric:
    network = {"topology": "leaf-spine", "link": link}
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network, **more}))


def job(tp: int, dp: int, pp: int = 1, zero: str = "1") -> Any:
    split = {"tp": tp, "pp": pp, "dp": dp, "zero": zero}
    return load_job({"model": "llama3-8b", "parallel": split, "batch": {"global": dp, "sequence": 4096, "micro": 1}})


def test_a_slow_port_and_a_short_host_are_not_multiplied() -> None:
    """42 ranks: the sixth host has one member of each group; the slow port is at a host that has four."""
    fabric = cluster(faults=[SLOW])
    found = step(fabric, job(2, 21))
    # Through host-01: 4 members, the slowest with 6.25 GB/s, so 25 GB/s. Through the short host: one port, 50 GB/s.
    assert found.case is not None
    assert float(found.case.laid_data_Bps) == pytest.approx(default_constants().fitted.e_net * 25e9)
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.1)


def test_alike_hosts_and_whole_domains_keep_the_formula() -> None:
    for dp, laid in ((24, False), (21, True)):
        case = step(cluster(), job(2, dp)).case
        assert laid == any(float(value) > 0 for name, value in vars(case).items() if name.startswith("laid_"))


def test_stages_share_what_leaves_a_site() -> None:
    """Three sites, two stages: the rings of both cross the same lines after the last backward."""
    site = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}
    wan = {"rate": "50Gbps", "latency": "5ms"}
    fabric = build(ClusterSpec.model_validate({"sites": [{"name": name, **site} for name in "abc"], "wan": wan}))
    found = step(fabric, job(1, 23, pp=2))
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.3)


def test_gpus_joined_pair_by_pair_use_all_their_links() -> None:
    """Four A100 with a third of their links to each other GPU: no ring alone has more than that third."""
    fabric = cluster(2, "polaris", "HDR")
    found = step(fabric, job(4, 2))
    stages, k = Stages(fabric, found, default_constants()), default_constants()
    assert stages.rails.mesh and not Rails.of(cluster(2), k.fitted.e_net, k.fitted.e_nvl).mesh
    assert 1 / stages.per_byte_s("tensor", 0) == pytest.approx(k.fitted.e_nvl * found.machine.nvlink_Bps)


def test_a_nic_sustains_the_same_share_of_its_way_into_the_host() -> None:
    """Polaris: 19.2 GB/s of a NIC reach the GPUs; execution and closed form take the same share of them."""
    fabric = cluster(4, "polaris", "HDR")
    found = step(fabric, job(4, 4))
    stages = Stages(fabric, found, default_constants())
    assert 1 / stages.per_byte_s("data", 0) == pytest.approx(default_constants().fitted.e_net * 19.2e9 / 2)


def test_copies_of_experts_are_the_replicas_that_experts_leave() -> None:
    """Two tensor ranks of 16 replicas over four experts: eight copies of each, four ranks apart."""
    split = {"tp": 2, "ep": 4, "dp": 16}
    asked = load_job({"model": "mixtral-8x7b", "parallel": split, "batch": {"global": 16, "sequence": 4096}})
    fabric = cluster(4)
    found = step(fabric, asked)
    assert found.case is not None
    ranks, stride = Stages(fabric, found, default_constants())._members(found.case, "data (experts)")
    assert (float(ranks), float(stride)) == (8, 4)


def test_a_plan_has_the_price_that_step_gives() -> None:
    fabric = cluster(faults=[SLOW])
    asked = load_job({"model": "llama3-8b", "batch": {"global": 96, "sequence": 4096}})
    answer = make_plan(fabric, asked, with_actions=False, with_run=False)
    closed = answer.best.predicted.closed_form_s or answer.best.predicted.step_time_s
    assert closed == pytest.approx(step(fabric, answer.result.job).step_time_s)


@pytest.mark.parametrize(("hosts", "share"), [(2, 1.0), (4, 2 * 31 / 32)])
def test_an_all_reduce_crosses_ports_as_nccls_tree_or_ring_does_by_every_verb(hosts: int, share: float) -> None:
    """Two hosts of eight GPUs send the buffer once, a tree's share; four send it 2 x 31/32 times, a ring's."""
    host = {"gpu": "H100-SXM5-80GB", "gpus": 8, "nics": 1, "nic": "ConnectX-7", "link": "100GbE"}
    fabric = build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": "fat-tree 100GbE"}))
    split = {"dp": 8 * hosts, "zero": "none"}
    batch = {"global": 8 * hosts, "sequence": 2048, "micro": 1}
    found = step(fabric, load_job({"model": "llama3.2-1b", "parallel": split, "batch": batch}))
    (calls,) = [one for one in priced_collectives(found) if "all-reduce" in one.name]
    k, size = default_constants(), round(calls.count * calls.size_bytes)
    by_hand = share * size / (k.fitted.e_net * 12.5e9)
    said = simulate(fabric, "allreduce", size, algorithm="nccl")
    assert calls.count * calls.time_s == pytest.approx(said.time_s, rel=1e-5)  # one price
    ring = 2 * (8 * hosts - 1) / (8 * hosts)  # what a rank of a ring sends of the buffer: the unit of a footprint
    assert ring * size * Stages(fabric, found, k).per_byte_s("data", 0) == pytest.approx(by_hand, rel=1e-6)
    assert found.comm_bytes["data"]["network"] == pytest.approx(share * size / 8, rel=1e-6)
    domain_of = Stages(fabric, found, k).rails.domain_of
    sent = gather_flows(fabric.gpus.astype(np.int64)[None], domain_of, rings=True, sums=True)  # what a preview lays
    away = domain_of[sent[0]] != domain_of[sent[1]]
    assert ring * sent[2][away].sum() / hosts == pytest.approx(share)
    assert said.interval_s is not None and said.interval_s[0] < share * size / 12.5e9 * 1.1 < said.interval_s[1]


@pytest.mark.parametrize("network", [{}, {"oversubscription": "4:1"}, {"oversubscription": "8:1"}])
def test_replicas_exchange_while_layers_wait_for_scale_up_links(network: dict[str, str]) -> None:
    """Ports are free during exchanges over NVLink; the head's gradients come first, its parameters last.

    By hand: gradients are summed in fp32, two thirds of the bytes, and parameters gathered in bf16. Of each, what is
    longer than the layers of a micro-batch and their waits is exposed, and never less than what nothing hides.
    """
    rack = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 2, **network}
    fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": "dgx-h100", "network": rack}))
    split = {"tp": 4, "dp": 8, "zero": "1"}
    job = load_job({"model": "llama3-8b", "parallel": split, "batch": {"global": 16, "sequence": 4096, "micro": 1}})
    found = step(fabric, job)
    case, cost = found.case, found.cost
    assert case is not None and cost is not None
    layers, waits = float(case.layers), found.parts_s["tp"] / 2
    third, least = float(cost.dp_wire) / 3, default_constants().held.least_exposed
    by_hand = sum(
        max(least * wire, wire - layers * float(compute) - waits / 2)
        for wire, compute in ((third, cost.layer.forward), (2 * third, cost.layer.behind))
    )
    assert found.parts_s["dp"] == pytest.approx(by_hand, rel=1e-9)
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.01)
