"""One change at a time: monotone where physics says so, and worth what the price says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planning.one_configuration import evaluate

from syncline.fabric import build, load
from syncline.fabric.spec import ClusterSpec
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.changes import faster_network, half_latency, wider_domain
from syncline.planning.sensitivity import LIKELY
from syncline.workload.read_job import load_job

STRONG = {"hosts": 8, "host": "dgx-h100", "network": "rail-optimized NDR"}
LARGE = {"model": "llama3-70b", "batch": {"global": 128, "sequence": 8192}}


@pytest.fixture(scope="module")
def weak() -> PlanResult:
    """Return a plan that the network limits: a small model over 10 GbE."""
    job = load_job({"model": "llama3-1b", "batch": {"global": 64, "sequence": 2048}})
    return make_plan(load("old-10gbe"), job)


def test_a_faster_network_never_slows_a_plan(weak: PlanResult) -> None:
    # Bucket and algorithm are priced against the best of each network, so they stay free here.
    d = replace(weak.best.decision, algorithm="", bucket_bytes=0)
    before = evaluate(weak.question, d).step_time_s
    for factor in (1.1, 2.0, 10.0):
        after = evaluate(faster_network(weak.question, factor), d).step_time_s
        assert after <= before
        before = after
    closed_s = weak.best.predicted.closed_form_s
    assert closed_s is not None
    assert evaluate(half_latency(weak.question), d).step_time_s <= closed_s
    assert evaluate(wider_domain(weak.question, 64), d).step_time_s <= closed_s


def test_bandwidth_is_worth_more_where_the_network_is_slow(weak: PlanResult) -> None:
    strong = make_plan(load(STRONG), load_job(LARGE))

    def worth(answer: PlanResult) -> float:
        return next(a.saving for a in answer.actions if a.name == "bandwidth")

    assert worth(weak) > 3 * max(worth(strong), 1e-4)


def test_money_follows_time(weak: PlanResult) -> None:
    assert weak.money is None or all(
        a.usd_per_year == pytest.approx(a.saving * weak.money.usd_per_year(weak.best.num_gpus)) for a in weak.actions
    )


def test_actions_are_ranked_and_say_what_they_change(weak: PlanResult) -> None:
    savings = [a.saving for a in weak.actions]
    assert savings == sorted(savings, reverse=True)
    kinds = {a.name: a.kind for a in weak.actions}
    assert kinds["accumulation"] == kinds["int8"] == "numerics"
    assert kinds["bandwidth"] == "hardware"
    assert all("convergence" in a.note for a in weak.actions if a.kind == "numerics")


def test_a_better_order_is_an_action_where_ranks_are_scattered() -> None:
    from syncline.planning.compare import fabric_with

    fabric = fabric_with("dgx-h100", "NDR", "fat-tree 4:1", 64)
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}})
    scattered = make_plan(fabric, job, fix={"placement": "scattered"})
    order = next(a for a in scattered.actions if a.name == "order")
    packed = make_plan(fabric, job, with_actions=False)
    assert order.saving > 0
    assert order.step_time_s >= packed.best.predicted.step_time_s
    assert order.kind == "free"


def test_overlap_is_an_action_where_it_is_off() -> None:
    answer = make_plan(load(STRONG), load_job(LARGE), fix={"tp_overlap": False, "dp_overlap": False, "tp": 8})
    overlap = next(a for a in answer.actions if a.name == "overlap")
    assert overlap.saving > 0.01


def test_a_fixed_split_stays_fixed_in_every_action() -> None:
    answer = make_plan(load(STRONG), load_job(LARGE), fix={"tp": 8, "pp": 4})
    assert all(a.plan.startswith("tp 8, pp 4,") for a in answer.actions)


def test_an_upgrade_has_a_price_and_a_payback() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}})
    answer = make_plan(load(STRONG), job)
    link = next(a for a in answer.actions if a.name == "link")
    assert link.price_usd is not None and link.price_usd > 1e5
    assert link.payback_years == pytest.approx(link.price_usd / (link.usd_per_year or 1.0))
    assert replace(link, price_usd=None).payback_years is None


def test_every_action_that_can_be_bought_has_a_price() -> None:
    from syncline.planning.compare import fabric_with

    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}})
    answer = make_plan(fabric_with("dgx-h100", "NDR", "fat-tree 4:1", 64), job)
    priced = {a.name: a for a in answer.actions}
    owned = answer.money.account.owned if answer.money else None
    assert owned is not None
    assert priced["ports"].price_usd == owned.network_usd + owned.nics_usd
    assert priced["domain"].price_usd == pytest.approx(512 * 175_000 / 4)
    assert "gb200-nvl72" in priced["domain"].note
    level = priced["oversubscription"].price_usd
    assert level is not None and 0 < level < 3 * owned.network_usd
    assert all(a.price_usd == 0 for a in answer.actions if a.kind in ("free", "numerics"))
    assert priced["bandwidth"].price_usd is None, "nobody sells a tenth of a link"


def test_more_lines_between_sites_cost_their_rent() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}})
    answer = make_plan(load("two-sites-wan"), job)
    lines = next(a for a in answer.actions if a.name == "wan")
    assert lines.price_usd == pytest.approx(4 * 960_000)
    assert lines.note == "rent of 4 years"
    assert lines.saving >= 0


def test_a_batch_that_the_gpus_share_evenly_is_an_action() -> None:
    """48 GPUs and a batch of 128 force a pipeline of three or six stages; 144 needs none."""
    host = {"gpu": "a100-80gb", "gpus": 8, "nics": 2, "link": "200GbE"}
    fabric = load({"name": "mine", "hosts": 6, "host": host, "network": {"topology": "leaf-spine", "link": "200GbE"}})
    job = {"model": "llama2-13b", "batch": {"global": 128, "sequence": 4096}}
    uneven = make_plan(fabric, load_job(job))
    found = next(action for action in uneven.actions if action.name == "even-batch")
    assert "144 instead of 128" in found.words
    even = make_plan(fabric, load_job({**job, "batch": {"global": 144, "sequence": 4096}}))
    per_sample = even.best.predicted.step_time_s / 144 / (uneven.best.predicted.step_time_s / 128)
    assert found.saving == pytest.approx(1 - per_sample, abs=0.02)
    assert not [action for action in even.actions if action.name == "even-batch"]


def test_faults_are_repaired_first_and_a_port_slower_than_none_is_left_out() -> None:
    faults = [{"link": "host-02/nic-0 <-> leaf-00", "rate": "50Gbps"}]
    host = {"model": "dgx-h100", "gpus": 2, "nics": 2}
    data = {"hosts": 4, "host": host, "network": {"topology": "leaf-spine", "link": "HDR"}, "faults": faults}
    job = load_job({"model": "llama3-1b", "batch": {"global": 32, "sequence": 2048}})
    replicas = {"tp": 1, "pp": 1}  # a pipeline keeps most of the exchange off the slow port
    actions = {a.name: a for a in make_plan(build(ClusterSpec.model_validate(data)), job, fix=replicas).actions}
    assert actions["repair"].words == "host-02/nic-0 <-> leaf-00 repaired"
    assert "NCCL_IB_HCA=^" in actions["slow-port"].words and actions["slow-port"].price_usd == 0.0
    # Two ports at 50 Gb/s carry 100, one at 200 carries 200, two carry 400.
    assert actions["repair"].saving > actions["slow-port"].saving > 0.05
    data["faults"] = []
    healthy = make_plan(build(ClusterSpec.model_validate(data)), job, fix=replicas)
    assert {"repair", "slow-port"}.isdisjoint(a.name for a in healthy.actions)


def test_a_cable_slower_than_none_is_shut() -> None:
    """Four uplinks in equal parts carry 4 x 50 Gb/s, three alone 3 x 400."""
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 1}
    faults = [{"link": "leaf-03 <-> spine-00", "which": 2, "rate": "50Gbps"}]
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": host, "network": network, "faults": faults}))
    found = make_plan(fabric, load_job({"model": "llama3-1b", "batch": {"global": 32, "sequence": 2048}}))
    actions = {action.name: action for action in found.actions}
    assert actions["slow-cable"].words == "leaf-03 <-> spine-00 (which: 2) shut, as it slows the others"
    assert actions["repair"].saving >= actions["slow-cable"].saving > 0.05
    assert any("costs more than leaving it out" in text for text in found.best.predicted.warnings)


def test_a_change_is_at_most_as_likely_as_its_kind() -> None:
    """A chance lies between 0 and 1, and nothing named on its own is surer than a setting."""
    assert all(0 < chance <= LIKELY["free"] < 1 for chance in LIKELY.values())
    assert LIKELY["numerics"] < LIKELY["int8"] < LIKELY["fp8"] < LIKELY["free"]
