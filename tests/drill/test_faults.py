from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.auditing.samples.plants import PLANTS
from tests.drill.healthy import healthy_logs
from tests.drill.in_lab import LOOKS, drill
from tests.drill.known_fault import known_faults
from tests.drill.measure import diagnose_logs, measure_logs

from syncline.auditing.audit import select
from syncline.auditing.environment import rule_ids
from syncline.diagnosis import shipped_rules
from syncline.errors import FaultError, LabError
from syncline.fabric import load
from syncline.fault.fault import FaultKind
from syncline.lab import Lab
from syncline.lab.drafting import draft
from syncline.lab.trouble import trouble
from syncline.program import place
from syncline.schedule import Kind as ScheduleKind
from syncline.sim.candidates import find
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.sweep import Contest

FAULTS = list(known_faults().values())


def test_healthy_logs_are_healthy() -> None:
    assert diagnose_logs(healthy_logs()).findings == []


def test_every_fault_is_diagnosed_with_its_cause_first() -> None:
    score = measure_logs()
    assert score.num_cases == sum(bool(fault.log) for fault in FAULTS) >= 30
    assert score.misses == () and score.extras == ()
    assert score.first_right == score.num_cases


@pytest.mark.parametrize("order", [("lossy-roce", "crowded-uplinks"), ("crowded-uplinks", "lossy-roce")])
def test_a_fault_leaves_the_lines_of_the_one_before(order: tuple[str, str]) -> None:
    logs = healthy_logs()
    for name in order:
        logs = known_faults()[name].planted(logs)
    assert {finding.rule for finding in diagnose_logs(logs).findings} == {"roce.lossy", "bench.ecmp"}


@pytest.mark.slow
def test_two_faults_at_once() -> None:
    score = measure_logs(pairs=True)
    assert score.recall >= 0.95 and score.precision >= 0.95
    assert score.first_right == score.num_cases


def test_records_name_what_exists() -> None:
    plants = {plant.name for plant in PLANTS}
    rules = {*shipped_rules(), *rule_ids()}
    for fault in FAULTS:
        assert set(fault.rules) <= rules, fault.id
        assert not fault.plant or fault.plant in plants, fault.id
        assert fault.happens or fault.plant or fault.log, fault.id


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.happens], ids=lambda f: f.id)
def test_a_fault_of_the_network_can_be_injected_in_a_lab(fault) -> None:
    fabric = load("h100-64-rail")
    made = fault.happening(fabric)
    assert made
    assert all(fabric.host_names[1] in f.target or "leaf" in f.target for f in made)


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if any(w in f.happens for w in (" down", " rate "))], ids=lambda f: f.id
)
def test_a_fault_of_cables_can_be_simulated(fault) -> None:
    fabric = load("h100-64-rail")
    broken = fault.on(fabric)
    changed = (broken.links.up != fabric.links.up) | (broken.links.rate_Bps != fabric.links.rate_Bps)
    assert 2 <= np.count_nonzero(changed) <= 4
    assert fault.happening(fabric)[0].kind in (FaultKind.DOWN, FaultKind.RATE)


def test_a_fault_without_a_standing_form_says_so() -> None:
    with pytest.raises(FaultError, match="not a state of cables"):
        known_faults()["mtu-mismatch"].on(load("h100-64-rail"))


@pytest.mark.parametrize("name", ["flat", "leaf-spine", "two-rails", "two-sites"])
def test_every_lab_of_the_guide_understands_every_fault(name: str) -> None:
    fabric = load(Path(__file__).parents[2] / "examples" / f"lab-{name}.yaml")
    blueprint = draft(fabric)
    understood = [trouble(blueprint, made) for fault in FAULTS for made in fault.happening(fabric)]
    assert {made.kind for made in understood} >= {"down", "rate", "loss", "mtu", "killed", "paused", "slow"}
    assert all(made.directions or made.host >= 0 for made in understood)


def test_a_slow_link_costs_time_in_the_simulator() -> None:
    fabric = load(Path(__file__).parents[2] / "examples" / "lab-leaf-spine.yaml")
    times = []
    for case in (fabric, known_faults()["slow-link"].on(fabric)):
        placed = place("packed", case, 8)
        contest = Contest.of(
            {"ring": find(case, ScheduleKind.ALL_REDUCE, 8, "ring")}, placed, FlowNetwork(case, NetworkOptions())
        )
        times.append(contest.one("ring", 1 << 24).time_s)
    assert times[1] > 2 * times[0]


IN_A_LAB = [fault for fault in FAULTS if fault.lab]


def test_every_fault_can_be_made_to_happen_in_a_lab_or_a_tree() -> None:
    assert [fault.id for fault in FAULTS if not fault.lab and not fault.plant] == []
    assert len(IN_A_LAB) >= 13


@pytest.mark.parametrize("fault", IN_A_LAB, ids=lambda f: f.id)
def test_what_a_lab_shows_is_something_that_is_looked_for(fault) -> None:
    by_hosts = {f"cluster.{name}" for name in ("link_downs", "tcp_retransmits", "cpu_held_back", "queueing")}
    by_paths = {f"cluster.path.{name}" for name in ("loss", "mtu", "unreachable")}
    by_pairs = {f"bench.slow.{kind}" for kind in ("host", "host-tx", "host-rx", "cable", "link")}
    assert set(fault.lab.finds) <= {*(rule.id for rule in select()), *shipped_rules(), *by_hosts, *by_paths, *by_pairs}
    assert fault.lab.by in (*LOOKS, "bench")


def test_faults_name_the_places_of_a_lab() -> None:
    fabric = load(Path(__file__).parents[2] / "examples" / "lab-leaf-spine.yaml")
    known = known_faults()
    assert known["slow-link"].place(fabric, 2) == (fabric.host_names[2],)
    cable = {"leaf-00 <-> spine-00", "leaf-00 -> spine-00", "spine-00 -> leaf-00"}
    assert cable <= set(known["crowded-uplinks"].place(fabric))
    assert known["program-diverged"].place(fabric) == (fabric.host_names[1], "rank 1")
    assert known["firewall"].place(fabric) == (fabric.host_names[1], fabric.host_names[0])
    done = known["firewall"].worded(
        "ip route add prohibit {other_address}", fabric, 1, {"host-00": "10.1.0.2"}.__getitem__
    )
    assert done == "ip route add prohibit 10.1.0.2"
    (passing,) = known["host-paused"].in_lab(fabric)
    assert (passing.start_s, passing.duration_s) == (1.0, 1.5)


def test_a_fault_of_trees_and_logs_alone_is_no_drill(tmp_path: Path) -> None:
    lab = Lab(load(Path(__file__).parents[2] / "examples" / "lab-flat.yaml"))
    with pytest.raises(LabError, match="cannot be made to happen in a lab"):
        drill(lab, tmp_path, known_faults()["memlock"])
