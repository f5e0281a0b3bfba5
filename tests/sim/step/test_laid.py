"""Groups laid on the links of a fabric whose hosts differ."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.plan.answer import make_plan
from syncline.sim.step import step
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.stages import Stages, is_mesh
from syncline.sim.step.laid import is_laid
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
    assert not is_laid(step(cluster(), job(2, 24)).case)
    assert is_laid(step(cluster(), job(2, 21)).case)


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
    assert is_mesh(fabric) and not is_mesh(cluster(2))
    assert 1 / stages.per_byte_s("tensor", 0) == pytest.approx(k.fitted.e_nvl * found.machine.nvlink_Bps)


def test_a_nic_sustains_the_same_share_of_its_way_into_the_host() -> None:
    """Polaris: 19.2 GB/s of a NIC reach the GPUs; execution and closed form take the same share of them."""
    fabric = cluster(4, "polaris", "HDR")
    found = step(fabric, job(4, 4))
    stages = Stages(fabric, found, default_constants())
    assert 1 / stages.per_byte_s("data", 0) == pytest.approx(default_constants().fitted.e_net * 19.2e9 / 2)


def test_a_plan_has_the_price_that_step_gives() -> None:
    fabric = cluster(faults=[SLOW])
    asked = load_job({"model": "llama3-8b", "batch": {"global": 96, "sequence": 4096}})
    answer = make_plan(fabric, asked, with_actions=False, with_run=False)
    closed = answer.best.predicted.closed_form_s or answer.best.predicted.step_time_s
    assert closed == pytest.approx(step(fabric, answer.result.job).step_time_s)
