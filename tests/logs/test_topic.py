from __future__ import annotations

from pathlib import Path

import pytest

from syncline.diagnosis import diagnose, shipped_rules
from syncline.logs.topic import rule_of, table


def test_every_topic_names_a_rule_that_is_reported() -> None:
    book = shipped_rules()
    named = {topic.rule for topic in (*table().causes, *table().topics)}
    assert {rule for rule in named if rule not in book or book[rule].signal} == set()


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("Nov  6 13:36:28 leaf-3 BGP: Peer 10.1.2.3 DOWN (Hold Timer Expired)", "switch.bgp.down"),
        (
            "Nov  6 13:36:28 leaf-3 Bfd: %BFD-5-STATE_CHANGE: peer 10.1.2.3 changed state from Up to Down",
            "switch.bfd.down",
        ),
        ("Nov  6 13:36:28 leaf-3 Bfd: %BFD-5-STATE_CHANGE: peer 10.1.2.3 changed state from Down to Up", ""),
        ("[ 9120.1001] bnxt_en 0000:41:00.0 rocep65s0f0: Failed to create HW CQ", "kernel.nic.command"),
        ("[  476.3325] nvme nvme2: rdma connection establishment failed (-14)", "storage.remote"),
        ("Nov  6 13:36:28 head dhcpd: DHCPDISCOVER via eth1: network A_net: no free leases", "net.addresses.exhausted"),
        ("Nov  6 13:36:28 leaf-3 mstpd: one_clag_cmd: setting (1) clag state: down", "switch.mlag"),
        ("Nov  6 13:36:28 leaf-3 syncd: xpsNhGrp.c:931 The next hop group is full", "switch.table.full"),
        (
            "<188>Sep 23 10:17:30 edge-1 chassisd[15]: CHASSISD_FRU_OFFLINE_NOTICE: Taking PEM 1 offline: Removal",
            "switch.environment",
        ),
        (
            "Aug 31 08:03:57 10.1.8.2 <188>%2SWPORT-W-LOCKPORTACTIVE: A packet tried to access port gi8",
            "switch.port.disabled",
        ),
        (
            "<189>38: *Jan  2 00:14:37: %LINK-5-CHANGED: Interface Gi0/4, changed state to administratively down",
            "",
        ),
        ("the weather is bad", ""),
    ],
)
def test_a_failing_line_is_named_by_its_subject_and_its_state(line: str, rule: str) -> None:
    assert rule_of(line) == rule


def test_what_a_line_calls_information_is_named_only_by_a_state_that_speaks_for_itself() -> None:
    line = "2026-02-11T10:01:02+00:00 leaf-1 bgpd[3]: 10.0.0.1 rejected an attribute"
    assert rule_of(line) == "switch.bgp.down"
    assert rule_of(line, grave=False) == ""


def test_a_topic_behind_the_first_cause_is_named_beside_a_rule_that_holds(tmp_path: Path) -> None:
    log = tmp_path / "leaf-3.log"
    log.write_text(
        "Feb 28 14:23:42.024553 leaf-3 ERR swss#orchagent: :- flush: failed, status: SAI_STATUS_FAILURE\n"
        "Feb 28 14:23:42.026242 leaf-3 ERR syncd#syncd: xpsNhGrp.c:931 The next hop group is full, groupSize 2\n"
    )
    first = diagnose([log]).causes[0]
    assert first.rule == "switch.table.full"
    assert "switch.asic" in {effect.rule for effect in first.effects}


def test_a_line_that_no_rule_knows_becomes_a_finding_with_its_port(tmp_path: Path) -> None:
    log = tmp_path / "leaf-3.log"
    log.write_text("Nov  6 13:36:28 leaf-3 LACPD: LACP_PARTNER_LOST: no answer on member Ethernet12/1, timed out\n")
    (cause,) = diagnose([log]).causes
    assert cause.rule == "switch.lag"
    assert "Ethernet12/1" in cause.place
    assert not cause.is_possible
