"""Designs: choices that build, bounds that hold, a front that nothing beats, and reasons."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syncline.describe.progress import Meter
from syncline.describe.units import show_money
from syncline.designing.choice import FabricChoice, gpu_counts, grid, space
from syncline.designing.growth import grow, growths, parts_usd
from syncline.designing.point import DesignPoint, DesignSearch, Miss
from syncline.designing.reasons import flips, millions, ranked, why_lost
from syncline.designing.resilience import remains
from syncline.designing.search import Designer
from syncline.designing.storage import storage_design
from syncline.designing.study import grid_study, study
from syncline.errors import PlanError, SynclineError, UsageError
from syncline.fabric import Fabric, load
from syncline.fabric.bill import bill
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import Tier
from syncline.planning.answer import ask, make_plan
from syncline.planning.cost.owning import own
from syncline.planning.search import search as plan_search
from syncline.planning.space import USUAL
from syncline.questions.clusters.build import fabric_build
from syncline.questions.cost import CostAnswer, cost
from syncline.questions.design import DesignAnswer, design
from syncline.questions.plan import ClusterAnswer, compare
from syncline.questions.step import StepPrediction
from syncline.questions.step import step as executed_step
from syncline.report.text.design import front_table
from syncline.sim.step.machine import reach_of
from syncline.sim.step.step import step
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

JOB = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}}
HOST = {"gpu": "H100", "gpus": 8, "nics": 8, "nic": "ConnectX-7", "link": "NDR"}


@pytest.fixture(scope="module")
def job() -> Job:
    return load_job(JOB)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> DesignAnswer:
    state = tmp_path_factory.mktemp("design") / "state.json"
    return design(JOB, gpus=64, links=("NDR",), state=state, later=512, storage=True)


def test_the_front_is_beaten_by_none_and_every_choice_is_accounted_for(answer: DesignAnswer) -> None:
    front, found = answer.front, answer.found
    assert not any(a is not b and a.at_least(b) for a in front for b in front)
    assert front[0].usd_per_token == min(point.usd_per_token for point in front)
    counted = len(found.impossible) + sum(found.over.values()) + found.num_bounded + found.num_planned
    assert counted >= found.num_choices  # alike labels are counted once among the impossible ones
    assert all(point.after_one >= 0.5 for point in front)
    assert len({(replace(point.choice, switch=""), round(point.after_one, 2)) for point in front}) == len(front)


def test_plan_of_every_cluster_says_what_the_front_says(answer: DesignAnswer, job: Job) -> None:
    """The cluster file, asked of `plan`, `step` and `cost`: layout, step, price of a token, idle GPUs, bill, cables."""
    for point in answer.front:
        fabric = load(point.choice.described())
        plan = make_plan(fabric, job, with_actions=False, with_run=False)
        assert plan.best.decision.label == point.plans[0]
        stepped = executed_step(fabric, plan.result.job)
        assert isinstance(stepped, StepPrediction)
        assert plan.best.predicted.step_time_s == point.step_s[0] == stepped.step_time_s
        assert plan.best.cost is not None
        assert plan.best.cost.cost_per_token_usd == pytest.approx(point.usd_per_token, rel=1e-12)
        assert plan.best.num_gpus - plan.best.decision.num_gpus == point.idle_gpus
        assert step(fabric, plan.result.job).fits
        paid = cost(point.choice.described(), job, step_time=f"{point.step_s[0]!r}s")
        assert isinstance(paid, CostAnswer)
        owned, failures = paid.statement.owned, paid.statement.failures
        assert (owned.capital_usd, owned.usd_per_year) == (point.capital_usd, point.usd_per_year)
        assert failures.goodput == plan.best.cost.goodput
        assert owned.usd_per_gpu_hour == plan.best.cost.usd_per_gpu_hour


def test_the_columns_of_several_jobs_line_up(answer: DesignAnswer) -> None:
    two = replace(answer.best, step_s=(31.06, 1.816))
    head, *rows = front_table([two, replace(two, idle_gpus=1_000), answer.best])
    assert {row.index(f"{answer.best.usd_per_token * 1e6:.4f}") for row in rows} == {head.index("$/M tokens")}
    assert {row.index(two.choice.label) for row in rows} == {head.index("fabric")}


def test_no_choice_that_was_bounded_away_would_have_won(job: Job, answer: DesignAnswer) -> None:
    """Every choice planned without bounds: none is better than a point of the front in everything."""
    designer = Designer([(job, 1.0)])
    for choice in list(space(("dgx-h100",), (64,), ("NDR",)))[::5]:
        try:
            choice.build()
        except SynclineError:
            continue
        point = designer._priced(choice, found := designer.run(()))
        assert point is not None and found.num_choices == 0
        designer._look(point, found)
        whole = found.points[0]
        if whole.after_one >= 0.5:
            assert not any(_better(whole, point) for point in answer.front), whole.choice.label


def _better(one: DesignPoint, other: DesignPoint) -> bool:
    mine, theirs = ((p.s_per_token, p.usd_per_year, p.power_w, -p.after_one) for p in (one, other))
    return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def test_a_design_goes_on_from_its_state(job: Job, tmp_path: Path) -> None:
    choices = list(space(("dgx-h100",), (64,), ("NDR",)))[:20]
    first = Designer([(job, 1.0)], state=tmp_path / "state.json").run(choices)
    again = Designer([(job, 1.0)], state=tmp_path / "state.json").run(choices)
    assert first.num_planned > 0 and again.num_planned == 0
    assert again.front() == first.front()
    other = job.model_copy(update={"optimizer": "sgd"})
    for jobs in ([(job, 2.0)], [(other, 1.0)]):  # the same job by name, with another memory
        with pytest.raises(PlanError, match="holds a design for"):
            Designer(jobs, state=tmp_path / "state.json").run(choices)


def test_every_stage_of_a_design_reports_progress_and_an_interrupt_keeps_the_front(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    choices = list(space(("dgx-h100",), (64,), ("NDR",)))[:6]
    whole = study(Designer([(job, 1.0)]), choices, meter=Meter(lambda *at: seen.append(at)))
    # Six choices, each priced and then planned or dropped.
    assert [done for done, _ in seen][-1] == 12 and seen[-1] == (12, 12)
    assert all(done <= total for done, total in seen) and whole.front[0].executed

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("syncline.designing.study.storage_beside", interrupt)
    cut = study(Designer([(job, 1.0)]), choices, with_storage=True)
    assert not cut.search.complete and cut.front[0].choice == whole.front[0].choice


def test_a_plan_that_was_interrupted_is_no_point(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search ends with what it has when it is interrupted, which a design must not take for the best."""
    choices = list(space(("dgx-h100",), (64,), ("NDR",)))[:6]
    cut = SimpleNamespace(found=SimpleNamespace(complete=False))
    monkeypatch.setattr("syncline.designing.search.make_plan", lambda *_, **__: cut)
    designer = Designer([(job, 1.0)])
    with pytest.raises(PlanError, match="interrupted before one of 6 fabrics was planned"):
        study(designer, choices)
    assert not designer.kept


def test_a_grid_goes_on_from_its_state(job: Job, tmp_path: Path) -> None:
    choices = list(grid(("dgx-h100",), (64,), ("NDR",), ("rail-optimized", "rail-only"), (1.0,)))
    first, again = (grid_study(Designer([(job, 1.0)], state=tmp_path / "state.json"), choices) for _ in range(2))
    assert again.front == first.front and first.search.num_planned > again.search.num_planned == 0


def test_the_page_of_a_grid_has_a_bar_and_a_bill_for_every_alternative(job: Job) -> None:
    answer = design(job, gpus=64, links=("NDR",), topologies=("rail-optimized", "rail-only"))
    page, text = answer.html(), str(answer)
    assert len(answer.front) == 2 and "Recommended: the cheapest token" in page
    for point in answer.front:
        assert page.count(point.label) >= 3 and text.count(point.label) >= 2  # a bar and two tables
        assert f"{point.worst}: {1 - point.after_one:.0%}, $" in text


def test_resilience_by_hand() -> None:
    rails = remains(load({"hosts": 16, "host": HOST, "network": {"topology": "rail-only", "link": "NDR"}}))
    assert (rails.after_one, rails.after_two) == (7 / 8, 6 / 8)  # a leaf is one of eight rails
    racks = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 4, "spines": 4}
    towers = remains(load({"hosts": 16, "host": HOST, "network": racks}))
    assert towers.after_one == 3 / 4  # a leaf takes its 4 of 16 hosts along; a spine a quarter of the uplinks
    assert towers.after_two == 1 / 2


@pytest.mark.parametrize(
    "cluster",
    [
        "h100-64-rail",
        {"hosts": 16, "host": "dgx-h100", "network": "rail-optimized 2:1 400GbE"},
        {"hosts": 8, "host": {"model": "dgx-h100", "nic": "ConnectX-8"}, "network": "rail-only XDR"},
        FabricChoice("dgx-h100", 16, "ConnectX-7", 8, "NDR", "fat-tree", 2.0, "QM9700", copper=True).described(),
    ],
)
def test_cables_cost_the_same_in_fabric_build_cost_and_design(cluster: Any) -> None:
    """By the lengths of the description, which the text names; the lengths in a room are a second figure beside it."""
    fabric, built = load(cluster), fabric_build(cluster)
    every = np.ones(len(fabric.devices), bool), np.ones(len(fabric.links), bool)
    owned, cables_usd = own(fabric), built.figures.billed_cable_price_usd
    switches_usd = sum(line.price_usd for line in bill(fabric).lines if line.kind == "switch")
    assert cables_usd > 0 and parts_usd(fabric, *every) == pytest.approx(switches_usd + cables_usd, rel=1e-12)
    assert owned.network_usd == pytest.approx(switches_usd + cables_usd, rel=1e-12)
    assert f"{show_money(cables_usd)} by the lengths that `cost` and `design` assume" in str(built)


def test_cards_change_the_price_of_a_host() -> None:
    """In a cluster file as in a design: 4 x $1,700 less, and eight ConnectX-8 for $3,000 each instead of eight."""
    four, eight = (
        own(FabricChoice("dgx-h100", 8, "ConnectX-7", nics, "NDR", "rail-only", 1.0, "QM9700").build()).hosts_usd
        for nics in (4, 8)
    )
    assert eight - four == pytest.approx(8 * 4 * 1700)
    faster = {"hosts": 8, "host": {"model": "dgx-h100", "nic": "ConnectX-8"}, "network": "rail-only XDR"}
    assert own(load(faster)).hosts_usd - eight == pytest.approx(8 * 8 * (3000 - 1700))
    designed = FabricChoice("dgx-h100", 8, "ConnectX-8", 8, "XDR", "rail-only", 1.0, "Q3400-RA").build()
    assert own(designed).hosts_usd == own(load(faster)).hosts_usd


def _point(s_per_token: float, capital: float, optics: float = 0.0, switch: str = "QM9700") -> DesignPoint:
    choice = FabricChoice("dgx-h100", 8, "ConnectX-7", 8, "NDR", "rail-only", 1.0, switch)
    return DesignPoint(
        choice, 64, capital, 1e6, optics, capital / 3, 1e5, 4, 0.8, 0.6, "leaf", s_per_token=s_per_token,
        paid_s_per_token=s_per_token,
    )  # fmt: skip


def test_of_tied_fabrics_the_one_that_keeps_most_after_a_failure_leads() -> None:
    cheap, robust, dear = _point(1.0, 1e6), _point(1.0, 1.005e6, switch="QM9790"), _point(1.0, 1.1e6, switch="SN5600")
    cheap, robust, dear = replace(cheap, after_one=0.5), replace(robust, after_one=0.75), replace(dear, after_one=0.99)
    assert ranked([dear, cheap, robust]) == (robust, cheap, dear)
    unexecuted = replace(robust, executed=False)
    assert ranked([dear, cheap, unexecuted]) == (cheap, dear, unexecuted)


def test_reasons_say_what_money_buys_and_where_optics_flip_it() -> None:
    cheap, fast = _point(1.00e-6, 10e6, optics=4e6), _point(0.98e-6, 12e6, switch="QM9790")
    (bought,) = millions([cheap, fast])
    assert bought.extra_usd == 2e6 and bought.faster == pytest.approx(0.02) and "QM9700" in bought.baseline
    assert "a step 2.00% shorter, 20.00% dearer a year" in why_lost(cheap, fast)
    (flip,) = flips([cheap, fast])
    # cheap costs 10 + 4 (f - 1); fast 12 x 0.98: equal at f = 1.44
    assert flip.factor == 1.5 and "QM9790" in flip.label
    assert flips([replace(cheap, optics_usd=0.0), fast]) == []


def test_tori_and_dragonflies_are_looked_at() -> None:
    found = {choice.topology: choice for choice in space(("dgx-h100",), (64,), ("NDR",))}
    assert set(found) == {"rail-only", "fat-tree", "rail-optimized", "dragonfly", "torus"}
    torus = found["torus"].build()
    network: Any = found["torus"].described()["network"]
    assert torus.num_hosts == 8 and network["shape"] == [2, 2, 2]
    dragonfly = replace(found["dragonfly"], spread=False)
    assert remains(dragonfly.build()).worst == "leaf"
    assert "cards on switches of their own" in replace(dragonfly, spread=True).label


def test_several_sites_have_a_network_each_and_pay_for_the_line() -> None:
    alone = FabricChoice("dgx-h100", 8, "ConnectX-7", 8, "NDR", "rail-only", 1.0, "FS-NDR-64")
    apart = replace(alone, sites=2, wan="100Gbps,5ms")
    assert apart in set(space(("dgx-h100",), (64,), ("NDR",), 2, "100Gbps,5ms"))
    assert len(apart.build().spec.sites) == 2 and "2 sites by 100Gbps,5ms" in apart.label
    assert own(apart.build()).usd_per_year > own(alone.build()).usd_per_year
    with pytest.raises(UsageError, match="need a line"):
        design(JOB, gpus=64, sites=2)
    with pytest.raises(UsageError, match="joins several sites"):
        design(JOB, gpus=64, wan="1Gbps,1ms")


def test_growth_by_hand() -> None:
    """4 hosts of 8 cards on leaves of 64 ports, 32 down: laid out for 16 hosts, which is 4 leaves under 2 spines."""
    choice = FabricChoice("dgx-h100", 4, "ConnectX-7", 8, "NDR", "fat-tree", 1.0, "QM9700")
    growth = grow(choice, (16,))
    switch, access, up = 50_000, *_cable_prices(choice.build(16))
    # Now: one leaf, both spines, 32 cables down and 32 up. Alone: one switch and 32 cables.
    assert (growth.switches_now, growth.switches_later) == (3, 3)
    assert (growth.cables_now, growth.cables_later) == (64, 192)
    assert growth.now_usd == pytest.approx(3 * switch + 32 * access + 32 * up)
    assert growth.later_usd == pytest.approx(3 * switch + 96 * access + 96 * up)
    found, cannot = growths([choice, replace(choice, switch="1GbE-48")], (16,))
    assert [each.choice for each in found] == [choice]
    assert "1GbE-48" in next(iter(cannot))
    # In three steps: 8 hosts fill a second leaf; what lies in the end is the same, and nothing of it is ahead.
    three = grow(choice, (8, 16))
    assert [(step.gpus, step.switches, step.cables) for step in three.steps] == [
        (32, 3, 64),
        (64, 1, 64),
        (128, 2, 128),
    ]
    assert three.total_usd == pytest.approx(growth.total_usd) and three.steps[-1].ahead_usd == pytest.approx(0.0)
    assert three.steps[0].ahead_usd == pytest.approx(2 * switch + 32 * up)


def _cable_prices(fabric: Fabric) -> tuple[float, float]:
    """Return the prices of an access cable and of one between switches, all of a kind alike."""
    catalog, links = load_catalog(), fabric.links
    found = []
    for tier in (Tier.ACCESS, Tier.LEAF_SPINE):
        row = int(np.flatnonzero(links.tier == tier)[0])
        found.append(catalog.cable(fabric.cables[links.cable[row]]).price_usd(float(links.length_m[row])))
    return found[0], found[1]


def test_storage_by_hand(job: Job) -> None:
    """8 billion parameters of 14 bytes in 100 s; 64 GPUs of 8 hosts that train a token in a microsecond."""
    sized = storage_design(_point(1e-6, 10e6), [(job, 1.0)])
    assert sized.need.read_Bps == pytest.approx(4e6)
    assert sized.need.write_Bps == pytest.approx(14 * job.model.params / 100)
    assert sized.per_host_Bps == pytest.approx(sized.need.write_Bps / 8)
    assert (sized.link, sized.servers) == ("25GbE", 1)
    assert sized.of_training_line == pytest.approx(sized.per_host_Bps / 400e9)


def test_a_job_runs_on_the_gpus_of_its_file_in_design_plan_and_compare(tmp_path: Path) -> None:
    """16 of 32 GPUs: the same layout, step and price of a token; without a number, the file's is designed for."""
    own_count, path = JOB | {"gpus": 16}, tmp_path / "cluster.yaml"
    asked = design(own_count, gpus=32, topologies=("rail-only",))
    asked.save(path)
    best, planned = asked.best, make_plan(load(path), load_job(own_count), with_actions=False).best
    assert planned.cost is not None and (best.idle_gpus, planned.decision.num_gpus) == (16, 16)
    assert (best.plans[0], best.step_s[0]) == (planned.decision.label, planned.predicted.step_time_s)
    assert best.usd_per_token == pytest.approx(planned.cost.cost_per_token_usd, rel=1e-12)
    compared = compare(own_count, clusters=[str(path)])
    assert isinstance(compared, ClusterAnswer)
    (row,) = compared.result.clusters
    assert (row.label, row.step_time_s) == (best.plans[0], best.step_s[0])
    assert design(own_count, topologies=("rail-only",)).best.num_gpus == 16


def test_a_budget_alone_looks_at_numbers_that_divide_well() -> None:
    price = load_catalog().host("dgx-h100").price_usd or 0.0
    assert gpu_counts(("dgx-h100",), None, 30.5 * price) == [8 * n for n in (14, 16, 20, 24, 28)]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a number of GPUs or a budget"):
        design(JOB)
    with pytest.raises(UsageError, match=r"`budget` must be a positive number, got -5\."):
        design("llama3-70b", gpus=64, budget=-5.0)
    with pytest.raises(UsageError, match=r"^`days` needs `tokens`"):
        design(JOB, gpus=64, days=3)
    with pytest.raises(UsageError, match="not at least two whole hosts"):
        design(JOB, gpus=12)
    with pytest.raises(PlanError, match="fabrics will do") as caught:
        design(JOB, gpus=64, links=("NDR",), power=1.0)
    said = r"break the power; the nearest needs [\d.]+ kW, [\d.]+ kW \([\d,.]+%\) more than 1 kW"
    assert re.search(said, str(caught.value))


def test_the_nearest_of_what_breaks_a_limit_is_told_in_its_unit() -> None:
    found = DesignSearch()
    for value in (260e3, 250.5e3, 300e3):
        found.miss(Miss("power", value, 250e3))
    found.miss(Miss("racks", 5, 4))
    found.miss(Miss("resilience", 0.25, 0.5))
    assert found.over == {"power": 3, "racks": 1, "resilience": 1}
    assert found.nearest["power"].words == "needs 250.5 kW, 500 W (0.2%) more than 250 kW"
    assert found.nearest["racks"].words == "needs 5 racks, 1 rack (25.0%) more than 4 racks"
    assert found.nearest["resilience"].words == "keeps 25% after one failed switch where 50% is asked"


def test_the_best_fabric_is_a_cluster_that_builds(answer: DesignAnswer) -> None:
    assert load(answer.cluster()).num_gpus == 64
    text = str(answer)
    assert "lost by their bound" in text and "why not" in text
    assert "to 512 GPUs without recabling" in text and "over the training network instead" in text
    assert answer.storage is not None and answer.storage.converged is not None
    assert 0 <= answer.storage.converged < 0.02 and answer.storage.converged_behind == pytest.approx(0, abs=1e-3)
    assert answer._repr_html_().count("<circle") == len(answer.front)


def test_parts_that_are_coming_are_looked_at_by_their_month() -> None:
    now, then = (list(space(("dgx-b200",), (1024,), ("400GbE",), by=by)) for by in ("", "2027-06"))
    last = list(space(("dgx-b200",), (1024,), ("400GbE",), by="2028-01"))
    assert set(now) < set(then) < set(last)
    assert not any(choice.switch.startswith("TH6") or choice.pods or choice.reduction for choice in now)
    assert {"TH6-64x1.6T", "TH6-CPO"} <= {choice.switch for choice in then} and any(choice.pods for choice in then)
    assert {choice.nic for choice in last} - {choice.nic for choice in then} == {"Gradient NIC 400"}
    assert any(choice.reduction for choice in space(("dgx-h100",), (1024,), ("NDR",), by="2026-12"))
    with pytest.raises(UsageError, match="is not a month"):
        design(JOB, gpus=64, by="next year")


def test_optics_in_the_package_save_modules() -> None:
    """One leaf of 256 ports: modules at the cards are left, those at the switch are gone, their power too."""
    base = FabricChoice("dgx-b200", 16, "ConnectX-7", 8, "400GbE", "rail-only", 1.0, "TH6-64x1.6T")
    plugged, lit = base.build(), replace(base, switch="TH6-CPO").build()
    catalog = load_catalog()
    names = {name for name in lit.cables if name.startswith("400G")}
    assert names == {"400G co-packaged one end"} and not any("co-packaged" in name for name in plugged.cables)
    one = catalog.cable("400G co-packaged one end")
    assert one.power_w == pytest.approx(catalog.cable("400G DR4").power_w / 2)


def _step_s(fabric: Fabric, **fix: Any) -> float:
    question, num_gpus = ask(fabric, load_job({"model": "llama3-8b", "batch": {"global": 1024, "sequence": 4096}}))
    return plan_search(question, num_gpus, axes=USUAL, fix=fix, keep=1).best[0].step_s


def test_sums_in_switches_halve_what_is_not_sharded_as_far_as_memory_allows() -> None:
    base = FabricChoice("dgx-h100", 64, "ConnectX-7", 4, "NDR", "rail-optimized", 1.0, "QM9700", reduction=True)
    plain = {"zero": "none", "tp": 8, "pp": 1}
    ring, summed = _step_s(replace(base, reduction=False).build(), **plain), _step_s(base.build(), **plain)
    small = base.described()
    small["parts"] = {"switch": [{"name": "QM9700", "like": "QM9700", "reduction_bytes": 4096, "estimates": {}}]}
    assert summed < ring and _step_s(load(small), **plain) == ring
    # A sharded state scatters and gathers: a sum in the switch saves it nothing.
    assert _step_s(base.build(), zero="1") == _step_s(replace(base, reduction=False).build(), zero="1")


def test_cards_that_compress_shorten_what_gradients_wait_for() -> None:
    base = FabricChoice("dgx-h100", 64, "ConnectX-7", 1, "400GbE", "rail-optimized", 4.0, "SN5600")
    assert _step_s(replace(base, nic="Gradient NIC 400").build(), zero="1") < _step_s(base.build(), zero="1")


def test_circuits_join_pods_as_a_job_needs_them() -> None:
    choice = FabricChoice("dgx-h100", 64, "ConnectX-7", 8, "NDR", "optical", 1.0, "QM9700", pods=4)
    rates = {c: reach_of(replace(choice, circuits=c).build()).pod_Bps for c in ("ring", "mesh")}
    # Half the spines' ports are circuits, 128 a pod: a ring lays 64 to each neighbour, a mesh 42 to each other pod.
    assert rates["ring"] == pytest.approx(64 * 50e9) and rates["mesh"] == pytest.approx(42 * 50e9)
