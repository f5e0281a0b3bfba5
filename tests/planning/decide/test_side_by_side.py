"""Clusters side by side, sweeps, the run of a job, and what is worth doing: on clusters planned in a moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from syncline.describe import units
from syncline.describe.pdf import browser
from syncline.describe.plain import plain
from syncline.errors import DescriptionError, PlanError, UsageError
from syncline.fabric.assumed import assumed_of
from syncline.fabric.change import changed
from syncline.fabric.load import described, load, parse_cluster
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import own
from syncline.planning.decide.apart import RATIO, Doubt, ratio_sigma, step_sigma
from syncline.planning.decide.prospects import prospects
from syncline.planning.decide.side_by_side import Candidate, ClusterComparison, side_by_side
from syncline.planning.sensitivity import LEAST_SAVING, worthwhile
from syncline.planning.space import USUAL
from syncline.questions.calibrate import calibrate_step
from syncline.questions.plan import PlanAnswer, compare, is_job, plan
from syncline.questions.step import step
from syncline.report.page.plan import plan_page
from syncline.report.page.side_by_side import clusters_page
from syncline.report.text.check.run import advice
from syncline.report.text.clusters.side_by_side import cluster_lines
from syncline.workload.read_job import load_job

JOB = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}, "tokens": "100B", "deadline": "30 days",
       "budget": "$40k", "start": "2027-01-15"}  # fmt: skip
FOUR = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}


@pytest.fixture(scope="module")
def planned() -> PlanAnswer:
    return plan(FOUR, load_job(JOB), workers=1)


def test_the_run_is_what_a_spreadsheet_says(planned: PlanAnswer) -> None:
    data = plain(planned.to_json())
    run, best = data["run"], data["best"]
    days = 100e9 / best["tokens_per_s"] / 86400 / data["recovery"]["goodput"]
    assert run["days"] == pytest.approx(days, rel=1e-9)
    assert run["usd"] == pytest.approx(days * 24 * 32 * data["cost"]["usd_per_gpu_hour"], rel=1e-9)
    assert run["days_90"][0] < run["days_50"][0] < run["days"] < run["days_50"][1] < run["days_90"][1]
    assert run["cheapest"]["usd"] <= min(o["usd"] for o in run["options"] if o["meets"]) + 1e-6
    assert run["fastest"]["days"] <= min(o["days"] for o in run["options"] if o["meets"]) + 1e-9
    owned = next(o for o in run["options"] if o["gpus"] == 16 and o["basis"] == "owned")
    assert owned["days"] > run["days"]


def test_what_nothing_meets_is_rented_or_bought(planned: PlanAnswer) -> None:
    hurried = load_job(JOB | {"deadline": "2 days", "budget": "$200k"})
    found = planned.result
    assert found.money is not None
    asked = replace(found.evaluator, question=replace(found.question, job=hurried))
    run = prospects(asked, found.best, replace(found.money, job=hurried), USUAL, found.tie_within)
    assert run.cheapest is None and run.fastest is None
    assert run.needed and all(option.num_gpus > 32 and option.basis != "owned" for option in run.needed)
    assert any(option.capital_usd > 200e3 for option in run.larger)  # to buy would not be within the budget
    assert advice(run).startswith("nothing here meets the goal; rent: ")


def test_only_what_is_worth_it_is_listed(planned: PlanAnswer) -> None:
    found = planned.result
    assert found.money is not None
    years = found.money.assumptions.years
    nets = [action.net_usd_per_year(years) for action in found.worthwhile]
    assert all(net is not None and net > 0 for net in nets) and nets == sorted(nets, reverse=True, key=float)  # type: ignore[arg-type]
    assert all(action.saving >= LEAST_SAVING for action in found.worthwhile)
    rented = replace(found.money, basis="rented: somewhere")
    assert not [a for a in worthwhile(found.actions, rented) if a.kind == "hardware"]
    assert found.network_bound is not None and 0 <= found.network_bound < 1
    network = [a for a in found.actions if a.name in ("bandwidth", "latency", "ports", "link")]
    assert max(a.saving for a in network) <= found.network_bound + 1e-6


def test_the_page_answers_before_it_explains(planned: PlanAnswer) -> None:
    page = plan_page(planned.result)
    for words in ("Recommendation:", "Alternatives", 'class="tornado"', "predicted step time", "print-color-adjust"):
        assert words in page
    assert (
        '<span class="whole">2027-' in page and ".whole { white-space: nowrap; }" in page
    )  # no line ends inside a date
    assert page.index("Recommendation:") < page.index("One step, as it would run")
    assert planned.result.run is not None
    for swing in planned.result.run.now.forecast.swings:
        assert swing.source


def test_no_browser_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="no browser to print a PDF with") as caught:
        browser()
    assert "apt install chromium" in str(getattr(caught.value, "hint", ""))


@pytest.fixture(scope="module")
def sweep() -> ClusterComparison:
    job = load_job(JOB)
    made = [Candidate(f"nics {n}", _nics(n), value=float(n)) for n in (1, 2, 8)]
    return side_by_side(job, made, swept="host.nics")


def _nics(count: int):  # type: ignore[no-untyped-def]
    return load(FOUR | {"host": {"model": "dgx-h100", "nics": count}})


def test_more_network_is_never_slower_and_never_cheaper_hardware(sweep: ClusterComparison) -> None:
    rates = [row.tokens_per_s for row in sweep.clusters]
    assert rates == sorted(rates)
    prices = [row.usd_per_gpu_hour or 0.0 for row in sweep.clusters]
    assert prices == sorted(prices)
    assert [row.value for row in sweep.clusters] == [1.0, 2.0, 8.0]  # a sweep keeps its order
    text = "\n".join(cluster_lines(sweep))
    assert "cheapest: " in text and "#" in text
    assert "tokens a second by host.nics" in clusters_page(sweep)


def test_the_page_has_what_a_run_costs_and_takes_first_with_its_range(sweep: ClusterComparison) -> None:
    page = clusters_page(sweep)
    assert "llama3-8b, 100 B tokens, 262,144 tokens a step" in page
    money, speed = (page.index(head) for head in ("<th>run cost</th>", "<th>tokens/s</th>"))
    assert money < speed
    for row in sweep.clusters:
        assert row.run is not None
        low, high = (units.show_money(end) for end in row.run.usd_90)
        assert f"{units.show_money(row.run.usd)} <small>{low} to {high}</small>" in page
    assert "32 H100-SXM5-80GB" in page


def test_ties_are_within_the_error_of_the_model(sweep: ClusterComparison) -> None:
    job = load_job(JOB)
    twice = side_by_side(
        job, [Candidate("a", load(FOUR)), Candidate("b", load(FOUR)), Candidate("c", load(FOUR), "azure")]
    )
    assert [row.tied for row in twice.clusters] == [False, True, False]
    assert twice.clusters[-1].basis.startswith("rented: Azure")
    sure = [row.sure for row in twice.clusters[1:]]
    assert sure[0] == 0.5 and sure[1] is not None and sure[1] > 0.8
    assert "sure against" not in "\n".join(cluster_lines(twice))  # a tie is said instead


def test_errors_that_two_clusters_share_count_once(sweep: ClusterComparison) -> None:
    one, other = sweep.clusters[0].doubt, sweep.clusters[1].doubt
    assert one is not None and other is not None
    assert step_sigma(one, one) == 0.0  # the same plan, owned or rented: its step is the same
    assert step_sigma(one, other) == RATIO["dense"][0] < one.step_sigma
    wide = Doubt("experts", "H100", "a", 0.65, {})
    assert ratio_sigma(wide, replace(wide, gpu="B200")) == RATIO["experts"][1]
    known = replace(wide, step_sigma=0.05)  # measured there: no wider than each by itself
    assert ratio_sigma(known, replace(known, gpu="B200")) == pytest.approx(0.05 * 2**0.5)
    assert RATIO["dense"][0] <= ratio_sigma(one, other) < 0.2  # hosts and assumptions are the same
    layers = replace(wide, kind="layers")  # no published pairs: each error by itself
    assert ratio_sigma(layers, replace(layers, gpu="B200")) == pytest.approx(0.65 * 2**0.5)


def test_compare_reads_jobs_clusters_and_sweeps(tmp_path: Path) -> None:
    job, cluster = tmp_path / "job.yaml", tmp_path / "cluster.yaml"
    job.write_text("model: llama3-8b\nbatch: {global: 64, sequence: 4096}\n")
    cluster.write_text("hosts: 2\nhost: dgx-h100\nnetwork: rail-optimized NDR\n")
    assert is_job(str(job)) and is_job("llama3-70b") and not is_job(str(cluster)) and not is_job("h100-64-rail")
    answer = compare(str(job), clusters=[str(cluster)], sweep=("job.batch.global", (32, 64)))
    assert [row["value"] for row in plain(answer.to_json())["clusters"]] == [32.0, 64.0]
    with pytest.raises(UsageError, match="a sweep takes one cluster"):
        compare(str(job), clusters=[str(cluster), "h100-64-rail"], sweep=("host.nics", (1, 2)))
    with pytest.raises(DescriptionError, match='there is no "wan" to change'):
        changed(str(cluster), "wan.rate", "1Gbps")
    with pytest.raises(PlanError, match="no cluster was left to compare"):
        compare(str(job), clusters=[f"{cluster}@deepseek"])


def test_what_a_file_leaves_open_is_said() -> None:
    def said(**data: object) -> str:
        return " ".join(assumed_of(parse_cluster(described({"hosts": 2, **data}))))

    assert "8 NICs a host, one a GPU: 100 Gb/s a GPU" in said(host="8 x A100", network="leaf-spine 100GbE")
    assert said(host="dgx-h100", network="rail-optimized NDR") == ""
    assert said(host={"gpu": "A100", "gpus": 8, "nics": 1}, network="leaf-spine 100GbE") == ""


def test_racks_that_are_sold_as_one_are_counted_as_such() -> None:
    nvl = own(load({"hosts": 288, "host": "gb200-nvl72", "network": "rail-optimized NDR"}), Assumptions())
    assert nvl.whole_racks == 16
    assert nvl.num_racks == 16 + 2  # 36 leaves and 32 spines in racks of 45 kW
    assert own(load(FOUR)).whole_racks == 0


def test_a_profile_moves_the_cluster_whose_part_it_was_measured_on(tmp_path: Path) -> None:
    job, clusters = tmp_path / "job.yaml", []
    job.write_text("model: llama3-8b\nbatch: {global: 64, sequence: 4096}\nparallel: {tp: 1, pp: 1, dp: 16}\n")
    for name in ("dgx-h100", "dgx-b200"):
        clusters.append(tmp_path / f"{name}.yaml")
        clusters[-1].write_text(f"hosts: 2\nhost: {name}\nnetwork: rail-optimized NDR\n")
    profile = tmp_path / "profile.yaml"
    predicted = plain(step(str(clusters[0]), str(job)).to_json())["step_time_s"]
    calibrate_step(str(clusters[0]), str(job), measured=1.3 * predicted).save(profile)
    names = [str(cluster) for cluster in clusters]
    plain_told, moved = (plain(compare(str(job), clusters=names, profile=given).to_json()) for given in (None, profile))
    shipped, measured = ({row["gpu"]: row["step_time_s"] for row in one["clusters"]} for one in (plain_told, moved))
    slow, fast = sorted(shipped, key=lambda gpu: -shipped[gpu])
    assert measured[slow] > 1.1 * shipped[slow] and measured[fast] == shipped[fast]
    assert any("as the model ships" in note and "b200" in note for note in moved["notes"])
    with pytest.raises(UsageError, match="the profile was measured on"):
        compare(str(job), clusters=names[1:], profile=profile)
    with pytest.raises(UsageError, match="`profile` needs clusters"):
        compare(str(job), gpus=64, profile=profile)
