"""Every rule finds what is planted for it, on every kind of host where it makes sense, and nothing else is found."""

from __future__ import annotations

import pytest
from tests.auditing.samples import HOSTS, HostDraft
from tests.auditing.samples.plants import PLANTS, Plant

from syncline.auditing.audit import audit
from syncline.auditing.checks import RULES
from syncline.auditing.report import HostReport
from syncline.finding import Severity
from syncline.host.root import Root
from syncline.logs.read_rules import shipped_rules

DRAFTS: dict[str, HostDraft] = {name: make() for name, make in HOSTS.items()}


def found_on(draft: HostDraft, plant: Plant | None = None) -> HostReport:
    return audit(Root.of(draft.tree(), draft.host), plant.expect if plant else None)


@pytest.mark.parametrize("host", HOSTS)
def test_a_healthy_host_has_no_finding_and_nothing_is_unknown(host: str) -> None:
    report = found_on(DRAFTS[host])
    assert [(f.rule, f.observed) for f in report.findings] == []
    assert report.status is Severity.OK


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_what_is_planted_is_found_and_nothing_else(plant: Plant) -> None:
    for host in plant.hosts:
        report = found_on(plant.into(DRAFTS[host]), plant)
        assert {finding.rule for finding in report.findings} == plant.rules, host
        for finding in report.findings:
            assert finding.severity in (Severity.WARNING, Severity.CRITICAL), host
            assert finding.place.startswith(DRAFTS[host].host)
            assert finding.observed
            assert finding.evidence
            assert finding.meaning
            assert finding.fix
            assert finding.reference


def test_every_rule_has_a_plant() -> None:
    planted = {rule for plant in PLANTS for rule in plant.rules}
    assert set(RULES) - planted == {"kernel.log"}  # what it finds has the names of the log rules
    assert planted - set(RULES) <= set(shipped_rules())


def test_a_misconfigured_virtual_machine_gets_all_its_findings() -> None:
    names = ("emulated bridge", "unlimited stack", "container's shared memory", "reno", "netem left behind",
             "name on loopback", "no transparent huge pages", "small ring")  # fmt: skip
    plants = [plant for plant in PLANTS if plant.name in names and "plain-vm" in plant.hosts]
    draft = DRAFTS["plain-vm"]
    for plant in plants:
        draft = plant.into(draft)
    expected = {rule for plant in plants for rule in plant.rules}
    assert len(expected) == 7
    assert {finding.rule for finding in found_on(draft).findings} == expected


def test_planting_leaves_the_healthy_host_alone() -> None:
    before = dict(DRAFTS["dgx-h100"].files), dict(DRAFTS["dgx-h100"].environment)
    for plant in PLANTS:
        if "dgx-h100" in plant.hosts:
            plant.into(DRAFTS["dgx-h100"])
    assert (DRAFTS["dgx-h100"].files, DRAFTS["dgx-h100"].environment) == before
