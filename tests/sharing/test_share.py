"""Jobs that share a cluster: figures worked out by hand, and two verbs on one question."""

from __future__ import annotations

import html
from typing import Any

import pytest

import syncline
from syncline.describe.plain import plain
from syncline.errors import DescriptionError, UsageError
from syncline.sharing.epochs import Epoch
from syncline.sharing.interleave import middle, periods
from syncline.sim.play import play
from syncline.sim.scenario import load_scenario

# One GPU a host, two racks joined by one cable of 10 Gb/s: 1.25 GB/s, and every job crosses it.
CABLES = [{"a": f"host-{h:02d}/nic-0", "b": f"leaf-0{h // 4}", "rate": "100Gbps"} for h in range(8)]
CLUSTER: dict[str, Any] = {
    "name": "line",
    "hosts": 8,
    "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "cx6", "link": "100GbE"},
    "network": {
        "topology": "explicit",
        "switches": [{"name": "leaf-00", "level": 1}, {"name": "leaf-01", "level": 1}],
        "cables": [*CABLES, {"a": "leaf-00", "b": "leaf-01", "rate": "10Gbps"}],
    },
}
#: 60 ms of work and 50 MB over the line: 40 ms.
STEP = {"compute": "60ms", "exchange": "50MB"}
FULL = {"efficiency": 1.0}


@pytest.fixture(scope="module")
def fabric() -> syncline.Fabric:
    return syncline.load(CLUSTER)


def jobs(*hosts: str | int, **keys: Any) -> list[dict[str, Any]]:
    return [{"name": f"job-{n}", "step": STEP, "hosts": h, **keys} for n, h in enumerate(hosts)]


def shared(fabric: syncline.Fabric, **keys: Any) -> tuple[Epoch, ...]:
    return syncline.share(fabric, {"network": FULL, **keys}).epochs


def test_two_jobs_by_hand(fabric: syncline.Fabric) -> None:
    (epoch,) = shared(fabric, jobs=jobs("0,4", "1,5"))
    for job in epoch.jobs:
        assert job.alone_s == pytest.approx(0.100, rel=1e-6)
        assert job.in_phase_s == pytest.approx(0.140, rel=1e-6), "60 ms, then 2 x 40 ms over one line"
        assert job.step_s == pytest.approx(0.101, rel=1e-3), "interleaved: the period is 1 % longer than the step"
    assert epoch.how == "slots"
    assert abs(epoch.jobs[1].offset_s - epoch.jobs[0].offset_s) >= 0.04


def test_jobs_without_a_link_in_common_are_left_alone(fabric: syncline.Fabric) -> None:
    (epoch,) = shared(fabric, jobs=jobs("0,1", "4,5"))
    assert epoch.how == "nothing"
    assert all(job.slowdown == pytest.approx(1, rel=1e-6) for job in epoch.jobs)


def test_hosts_are_given_in_one_rack_where_they_fit(fabric: syncline.Fabric) -> None:
    (epoch,) = shared(fabric, jobs=jobs(3, 4))
    assert epoch.jobs[1].hosts == ("host-00", "host-01", "host-02", "host-03")
    assert epoch.jobs[0].hosts == ("host-04", "host-05", "host-06")
    with pytest.raises(UsageError, match="wants 5 hosts; 4 are free"):
        shared(fabric, jobs=jobs(5, "0-3"))


def test_the_scenario_verb_says_the_same(fabric: syncline.Fabric) -> None:
    # Two ranks: a ring all-reduce sends the buffer once each way.
    part = {"size": "50MB", "ranks": 2, "compute": "60ms", "repeat": 6, "algorithm": "ring"}
    network = {"transport": "ideal", "routing": "static"}

    def ends(start: str, period: str) -> list[float]:
        both = [{"name": "a", "hosts": "0,4", **part, "period": period},
                {"name": "b", "hosts": "1,5", **part, "start": start, "period": period}]  # fmt: skip
        return [job.took_s / 6 for job in play(load_scenario({"network": network, "jobs": both}), fabric).jobs]

    assert ends("0s", "0s") == pytest.approx([0.140, 0.140], rel=0.01)
    assert ends("50ms", "101ms") == pytest.approx([0.101, 0.101], rel=0.01)


def test_a_guarantee_is_kept(fabric: syncline.Fabric) -> None:
    mine = {"name": "gold", "tenant": "gold", "step": {"compute": "1ms", "exchange": "50MB"}, "hosts": "0,4"}
    crowd = [{"name": f"c{n}", "step": {"compute": "1ms", "exchange": "50MB"}, "hosts": f"{n},{4 + n}"} for n in (1, 2)]
    # Three always send: a third of the line each, or half of it for gold: 40 ms become 120 or 80.
    (even,) = shared(fabric, jobs=[{**mine, "priority": 1}, *({**c, "priority": 1} for c in crowd)])
    (kept,) = shared(fabric, jobs=[mine, *crowd], tenants={"gold": 0.5})
    assert even.jobs[0].in_phase_s == pytest.approx(0.121, rel=0.02)
    assert kept.jobs[0].in_phase_s == pytest.approx(0.081, rel=0.02)


def test_a_job_is_not_starved_to_please_the_mean(fabric: syncline.Fabric) -> None:
    # Each sends for 40 ms of 50: the line is full for 80 of 100 ms or more, whatever is steered.
    greedy = [{**job, "step": {"compute": "10ms", "exchange": "50MB"}} for job in jobs("0,4", "1,5")]
    (epoch,) = shared(fabric, jobs=greedy)
    assert all(job.step_s >= 0.0799 for job in epoch.jobs)
    assert all(job.step_s <= 1.01 * job.unsteered_s for job in epoch.jobs)
    (kept,) = shared(fabric, jobs=[greedy[0], {**greedy[1], "priority": 1}])
    # The first has the line to itself; the second has the 10 ms in 50 that are left: 40 ms of them take 200.
    assert kept.jobs[0].step_s == pytest.approx(0.050, rel=0.01)
    assert kept.jobs[1].step_s == pytest.approx(0.200, rel=0.1)


def test_storage_beside_training(fabric: syncline.Fabric) -> None:
    steady = {"name": "reads", "from": "1", "to": "5", "rate": "5Gbps"}
    (epoch,) = shared(fabric, jobs=jobs("0,4"), traffic=[steady])
    # Half of the line is taken: max-min leaves the job the other half, so 40 ms become 80.
    assert epoch.jobs[0].step_s == pytest.approx(0.140, rel=0.01)
    (kind,) = shared(fabric, jobs=jobs("0,4"), traffic=[{**steady, "priority": 7}])
    assert kind.jobs[0].step_s == pytest.approx(0.100, rel=0.01), "a lower class takes what is left"


def test_arrivals_departures_and_failures_make_epochs(fabric: syncline.Fabric) -> None:
    late = {**jobs("1,5")[0], "name": "late", "arrives": "10s", "leaves": "20s"}
    slow = {"link": "leaf-00 <-> leaf-01", "rate": "5Gbps", "at": "20s", "until": "30s"}
    cut = {"link": "leaf-00 <-> leaf-01", "at": "30s"}
    found = shared(fabric, jobs=[*jobs("0,4"), late], failures=[slow, cut])
    assert [(e.begin_s, e.end_s, len(e.jobs)) for e in found] == [(0, 10, 1), (10, 20, 2), (20, 30, 1), (30, None, 0)]
    assert found[2].jobs[0].slowdown == pytest.approx(1.4, rel=0.01)
    assert "no path" in found[3].stalled


def test_headroom_is_what_the_line_has_left(fabric: syncline.Fabric) -> None:
    (busy,) = shared(fabric, jobs=jobs("0,4"))
    (idle,) = shared(fabric, jobs=jobs("0,1"))
    assert busy.headroom < 0.05, "its bursts take the whole line"
    assert idle.headroom > 0.9


def test_a_training_job_is_its_executed_step() -> None:
    network = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": "8:1", "hosts_per_leaf": 2}
    cluster = syncline.load({"hosts": 4, "host": "8 x H100", "network": network})
    job = {"model": "llama3-8b", "batch": {"global": 16, "sequence": 2048}, "gpus": 16}
    both = [{"name": "a", "job": job, "hosts": "0,2"}, {"name": "b", "job": job, "hosts": "1,3"}]
    (epoch,) = syncline.share(cluster, {"jobs": both}).epochs
    placed = syncline.place(cluster, job, hosts="0,2")
    assert epoch.jobs[0].alone_s == pytest.approx(placed.packed_s, rel=1e-6)
    assert epoch.jobs[0].in_phase_slowdown > 1.1


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"jobs": [{"name": "a", "hosts": 1}]}, "needs either `job` or `step`"),
        ({"jobs": jobs("0,4"), "tenants": {"a": 0.7, "b": 0.6}}, "guarantees add up to 1.30"),
        ({"jobs": jobs(1), "traffic": [{"from": "0", "to": "1"}]}, "has either a `rate`"),
        (
            {"jobs": jobs(1), "traffic": [{"from": "0", "to": "1", "size": 1, "every": 0}]},
            "`every` must be longer than 0 s",
        ),
        (
            {"jobs": jobs("0,4"), "traffic": [{"name": "t", "from": "0", "to": "4", "size": 1, "every": "1us"}]},
            r'traffic "t" comes [\d,]+ times in the \S+ s .* at most 100,000',
        ),
        ({"jobs": [{**jobs(1)[0], "arrives": "2s", "leaves": "1s"}]}, "leaves before it arrives"),
        ({"jobs": jobs("0,99")}, "there is no host 99"),
    ],
)
def test_mistakes(fabric: syncline.Fabric, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        syncline.share(fabric, keys)


def test_progress_counts_runs_and_ends_with_all_of_them(fabric: syncline.Fabric) -> None:
    seen: list[tuple[int, int]] = []
    jobs = [{"name": name, "step": STEP, "hosts": hosts} for name, hosts in (("a", "0,2"), ("b", "1,3"))]
    syncline.share(fabric, {"jobs": jobs}, progress=lambda *at: seen.append(at))
    # 2 alone; then 2 alone again, 3 by chance, 11 in slots, 1 in classes, 5 halvings.
    assert {total for _, total in seen} == {2 + 2 + 3 + 11 + 1 + 5}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen) and seen[-1] == (24, 24)
    assert len(seen) > 15


def test_periods_and_middles() -> None:
    assert periods([1.0, 0.34]) is None
    assert periods([0.9, 0.3]) == pytest.approx((0.9, 0.3))
    assert middle([1.0] * 4 + [2.0] * 6) in (1, 2)
    assert middle([1.0, 2.0, 2.0, 1.0, 1.0]) == 4, "runs go round"


def test_the_page_shows_every_job(fabric: syncline.Fabric) -> None:
    answer = syncline.share(fabric, {"jobs": jobs("0,4", "1,5")})
    page = html.unescape(answer._repr_html_())
    assert page.count('class="lane"') == 2
    assert "SYNCLINE_SLOTS=" in str(answer)


def test_an_arrival_in_transition_by_hand(fabric: syncline.Fabric) -> None:
    """Alone 100 ms; with the other in slots 101 ms, and no step in between is longer than both bursts take together."""
    both = jobs("0,4", "1,5")
    both[1] |= {"arrives": "10s", "leaves": "20s"}
    answer = syncline.share(fabric, {"network": FULL, "jobs": both})
    arrival, departure = answer.transitions
    assert (arrival.arrived, arrival.left, departure.left) == (("job-1",), (), ("job-1",))
    (stays,) = arrival.jobs
    assert stays.name == "job-0" and stays.before_s == pytest.approx(0.100, rel=1e-6)
    assert stays.after_s == pytest.approx(0.101, rel=1e-3)
    assert 0.101 * (1 - 1e-3) <= stays.worst_s <= 0.140 * (1 + 1e-6)
    (left,) = departure.jobs
    assert left.after_s == pytest.approx(0.100, rel=1e-3)
    assert [row["arrived"] for row in plain(answer.to_json())["transitions"]] == [["job-1"], []]
    assert "job-1 arrives" in str(answer)


def test_packets_say_what_the_flow_level_says(fabric: syncline.Fabric) -> None:
    """Two jobs of 6 ms and 4 ms of the line: in slots 10.1 ms. In phase 14 ms, unless one wins and they drift apart."""
    step = {"compute": "6ms", "exchange": "5MB"}
    both = [{"name": name, "step": step, "hosts": hosts} for name, hosts in (("a", "0,4"), ("b", "1,5"))]
    answer = syncline.share(fabric, {"network": FULL, "jobs": both}, level="packet", transport="dctcp")
    (played,) = answer.packets
    assert played.scale == 1.0
    for job in played.jobs:
        assert job.alone_s == pytest.approx(10e-3, rel=0.05)
        assert 1.1 < job.in_phase_slowdown < 1.45
        assert job.slowdown is not None and job.slowdown == pytest.approx(1.01, rel=0.05)
    assert "packet by packet (dctcp)" in str(answer)
    with pytest.raises(UsageError, match="cannot guarantee tenants"):
        syncline.share(fabric, {"tenants": {"gold": 0.5}, "jobs": both}, level="packet")
    with pytest.raises(UsageError, match="One of: flow, packet"):
        syncline.share(fabric, {"jobs": both}, level="quantum")


def test_an_epoch_names_what_has_failed_in_it(fabric: syncline.Fabric) -> None:
    slow = {"link": "leaf-00 <-> leaf-01", "rate": "5Gbps", "at": "10s"}
    idle = {"device": "host-07/nic-0", "at": "20s"}
    found = shared(fabric, jobs=jobs("0,4"), failures=[slow, idle])
    assert [epoch.failed for epoch in found] == [(), (slow["link"],), (slow["link"], idle["device"])]
