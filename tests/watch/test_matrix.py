"""Kinds of traffic, links and sources under the real rules: faults are named and closed, clean hosts raise nothing."""

from __future__ import annotations

import pytest
from tests.watch.matrix import TRAFFIC, Fault, judge


@pytest.mark.parametrize("traffic", TRAFFIC)
def test_a_clean_host_raises_nothing_whatever_its_interface_reports(traffic: str) -> None:
    found = judge(traffic, seconds=75.0)
    assert (found.critical, found.warning) == (set(), set())


@pytest.mark.parametrize("source", ["rates", "prometheus"])
@pytest.mark.parametrize("traffic", ["two-way", "one-way", "checkpointing"])
def test_a_clean_host_that_nobody_samples_is_never_critical(traffic: str, source: str) -> None:
    assert judge(traffic, source=source, seconds=75.0).critical == set()


@pytest.mark.parametrize("traffic", ["two-way", "one-way"])
def test_a_crowded_host_whose_links_are_fine_raises_nothing(traffic: str) -> None:
    found = judge(traffic, is_crowded=True, seconds=75.0)
    assert (found.critical, found.warning) == (set(), set())


@pytest.mark.parametrize("share", [0.7, 0.2, 0.01])
@pytest.mark.parametrize(("traffic", "way"), [("two-way", "out"), ("two-way", "back"), ("one-way", "out")])
def test_a_cut_link_is_named_in_two_seconds_and_closed_in_five(traffic: str, way: str, share: float) -> None:
    found = judge(traffic, fault=Fault(way, share), seconds=56.0)
    assert found.named_s is not None
    assert found.named_s <= (2.5 if way == "back" else 2.0)  # nobody sees what waits at the other end
    assert found.closed_s is not None
    assert found.closed_s <= 5.0
    assert {place for _, place in found.critical | found.warning} == {f"host/eth0 {'tx' if way == 'out' else 'rx'}"}
    assert way == "back" or found.critical  # packets wait for it


def test_a_job_of_long_steps_is_judged_over_its_steps() -> None:
    found = judge("slow steps", fault=Fault("out", 0.5), seconds=60.0)
    assert found.named_s is not None
    assert found.named_s <= 5.0
    assert found.closed_s is not None
    assert found.closed_s <= 5.0


def test_lost_packets_are_named_on_the_way_that_loses_them() -> None:
    found = judge("one-way", fault=Fault(loss=0.001), seconds=56.0)
    assert found.named_s is not None
    assert found.named_s <= 2.0
    assert found.critical == {("link.loss", "host/eth0 tx")}
    assert found.closed_s is not None
    assert found.closed_s <= 5.0
