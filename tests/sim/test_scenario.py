"""Scenarios: read with clear errors, played as the flow level plays jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.errors import DescriptionError, FabricError, SimulationError
from syncline.fabric import Fabric, load
from syncline.sim.play import play, read_hosts
from syncline.sim.scenario import load_scenario

CLUSTER = "hosts: 8\nhost: 8 x H100\nnetwork: rail-optimized NDR\n"
PAIR = {
    "collective": "allreduce",
    "algorithm": "ring",
    "size": "256MiB",
    "placement": "spread",
    "ranks": 4,
    "hosts": "0-3",
}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Fabric:
    path = tmp_path_factory.mktemp("cluster") / "small.yaml"
    path.write_text(CLUSTER)
    return load(path)


def job(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, **PAIR, **keys}


def test_a_job_alone_loses_nothing_and_repetitions_follow_each_other(fabric: Fabric) -> None:
    once = play(load_scenario({"jobs": [job("a")]}), fabric).jobs[0]
    assert once.slowdown == pytest.approx(1)
    again = play(load_scenario({"jobs": [job("a", repeat=3, compute="5ms", start="1s")]}), fabric).jobs[0]
    assert again.took_s == pytest.approx(3 * (once.took_s + 5e-3), rel=1e-6)
    assert again.start_s == 1.0
    assert again.slowdown == pytest.approx(1)


def test_jobs_share_and_a_guarantee_holds(fabric: Fabric) -> None:
    jobs = [job("gold", tenant="gold"), job("b"), job("c")]
    fair = play(load_scenario({"jobs": jobs}), fabric)
    assert [found.slowdown for found in fair.jobs] == pytest.approx([3, 3, 3], rel=0.01)
    assured = play(load_scenario({"jobs": jobs, "tenants": {"gold": 0.5}}), fabric)
    assert [found.slowdown for found in assured.jobs] == pytest.approx([2, 3, 3], rel=0.01)
    assert assured.busiest[0][1] == pytest.approx(1, abs=1e-3)


def test_of_equally_busy_links_the_first_are_listed_whatever_the_rounding(fabric: Fabric) -> None:
    report = play(load_scenario({"jobs": [job("a", hosts="0-7", ranks=8)]}), fabric)
    moved = report.outcome.course.link_bytes
    before = [link for link, _ in report.busiest]
    moved *= 1 + 1e-15 * np.arange(len(moved))
    assert [link for link, _ in replace(report).busiest] == before  # reckoned anew


def test_jobs_wait_for_each_other_and_stragglers_are_slow(fabric: Fabric) -> None:
    jobs = [job("a", slow={1: 4.0}), job("b", after=["a"])]
    first, second = play(load_scenario({"jobs": jobs}), fabric).jobs
    assert first.slowdown == pytest.approx(4, rel=0.02)
    assert second.start_s == first.end_s
    assert second.slowdown == pytest.approx(1)


def test_a_failed_nic_delays_by_its_detection_and_a_repair_ends_it(fabric: Fabric) -> None:
    down = {"at": "2ms", "device": "host-00/nic-0"}
    moved = play(load_scenario({"jobs": [job("a")], "events": [{**down, "reroute": "1ms"}]}), fabric).jobs[0]
    waits = {"jobs": [job("a")], "events": [down, {"at": "12ms", "device": "host-00/nic-0", "rate": "full"}]}
    waited = play(load_scenario(waits), fabric).jobs[0]
    assert moved.took_s == pytest.approx(moved.alone_s + 1e-3, rel=0.05)
    assert waited.took_s == pytest.approx(waited.alone_s + 10e-3, rel=0.01)
    with pytest.raises(SimulationError, match="a flow never ends: host-00/pcie-0 -> host-00/nic-0 has no rate"):
        play(load_scenario({"jobs": [job("a")], "events": [down]}), fabric)


def test_other_traffic_takes_its_part_and_a_lower_class_does_not(fabric: Fabric) -> None:
    noise = {"from": "0", "to": "1", "rate": "200Gbps", "for": "1s"}
    above = play(load_scenario({"jobs": [job("a")], "traffic": [noise]}), fabric).jobs[0]
    below = play(load_scenario({"jobs": [job("a")], "traffic": [{**noise, "priority": 1}]}), fabric).jobs[0]
    assert above.slowdown > 1.5
    assert below.slowdown == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jobs": [job("a"), job("a")]}, 'two jobs are called "a"'),
        ({"jobs": [job("a", after=["b"])]}, 'job "a" waits for "b", which is not a job before it'),
        ({"jobs": [job("a", collective="gossip")]}, 'no collective is called "gossip"'),
        ({"jobs": [job("a", sise=1)]}, 'unknown key "sise"'),
        ({"jobs": [{"name": "a"}]}, '"size" is missing'),
        ({"jobs": []}, "jobs: .*at least one entry"),
        ({"jobs": [job("a", size="1 potato")]}, r"jobs\.0\.size: "),
        ({"jobs": [job("a")], "events": [{"at": "1s"}]}, "either a `link` or a `device`"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_scenario(change)


def test_a_mistake_in_a_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("jobs:\n  - name: a\n    size: 1MiB\n    wieght: 3\n")
    with pytest.raises(DescriptionError) as caught:
        load_scenario(path)
    assert caught.value.where.endswith("s.yaml line 4")


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({"jobs": [job("a", hosts="0-9")]}, "the cluster has hosts 0 to 7"),
        ({"jobs": [job("a", hosts="first")]}, 'hosts "first" cannot be read'),
        ({"jobs": [job("a", ranks=100)]}, "wants 100 ranks; hosts 0-3 have 32 GPUs"),
        ({"jobs": [job("a")], "traffic": [{"from": "99", "to": "1", "rate": "1Gbps", "for": "1s"}]}, "no host 99"),
        ({"jobs": [job("a")], "tenants": {"gold": 0.5}}, 'tenant "gold" has a guarantee but no job'),
        ({"jobs": [job("a")], "events": [{"at": "1s", "link": "leaf-00 <-> leaf-01"}]}, "no link joins"),
    ],
)
def test_what_the_cluster_does_not_have_is_named(fabric: Fabric, scenario: dict[str, Any], message: str) -> None:
    with pytest.raises((SimulationError, FabricError), match=message):
        play(load_scenario(scenario), fabric)


def test_hosts_are_read_as_people_write_them() -> None:
    assert read_hosts(" 3, 0-1 ", 4) == [3, 0, 1]
