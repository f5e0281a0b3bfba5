"""Which of several slow links is slow by itself, and which carry what it lets through."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, frame, load, reached

from syncline.watch.links import KnownLink, LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.degraded_rule import LinkDegraded
from syncline.watch.rules.past import Past
from syncline.watch.rules.reach import LinkReach
from syncline.watch.rules.rule import Context
from syncline.watch.rules.thresholds import Thresholds

UP, ACROSS, BACK, DOWN = (
    "host-03/nic-0 -> leaf-01",
    "leaf-01 -> spine-01",
    "spine-01 -> leaf-01",
    "leaf-01 -> host-03/nic-0",
)
FAR, LAST = "spine-01 -> leaf-00", "leaf-00 -> host-00/nic-0"
NAMES = (UP, ACROSS, BACK, DOWN, FAR, LAST)
"""A path from one host to another under two leaves, and two links the other way."""
SRC, DST = zip(*(name.split(" -> ") for name in NAMES), strict=True)
LINKS = LinkTable(
    NAMES, NAMES, ("tx",) * len(NAMES), np.full(len(NAMES), CAPACITY), np.zeros(len(NAMES), int), SRC, DST
)


def named(
    peaks: dict[str, float],
    backlog: dict[str, float],
    usual: float = 1.0,
    active: tuple[str, ...] = (),
    looks: int = 6,
) -> set[str]:
    """Return the links that are named, for so many looks at these shares of their capacity with these bytes waiting."""
    past = {"rate": Past(lag=0)}
    for _ in range(60):
        past["rate"].add(NAMES, np.full(len(NAMES), 0.5 * CAPACITY))
    now = load(
        LINKS, use=0.4, peak_Bps=[peaks.get(name, usual) * CAPACITY for name in NAMES],
        backlog_bytes=[backlog.get(name, 0.0) for name in NAMES],
    )  # fmt: skip
    before = load(LINKS, use=0.4, peak_Bps=[usual * CAPACITY] * len(NAMES))
    recent = deque(frame(k, LINKS, now if k > 60 - looks else before) for k in range(60))
    up = {"link.degraded": set(active)}
    reach = reached(LINKS, usual * CAPACITY, now.peak_Bps, looks)
    context = Context(Thresholds(), Prediction(), frame(60, LINKS, now), recent, past=past, active=up, reach=reach)
    return set(LinkDegraded().look(context).bad)


SLOW = {ACROSS: 0.5, FAR: 0.5, LAST: 0.5}
LONG, CHANCE = 0.03 * CAPACITY, 0.001 * CAPACITY


def test_links_after_a_slow_one_carry_what_it_lets_through() -> None:
    assert named(SLOW, {ACROSS: LONG}) == {ACROSS}
    assert named(SLOW, {}) == {ACROSS}  # no look fell into a collective


def test_a_packet_in_a_queue_by_chance_convicts_nobody() -> None:
    assert named(SLOW, {ACROSS: LONG, LAST: CHANCE}) == {ACROSS}
    assert named(SLOW, {LAST: CHANCE}) == {ACROSS}
    assert named(SLOW, {ACROSS: LONG, LAST: LONG}) == {ACROSS, LAST}  # two faults


def test_a_link_that_is_slower_still_is_slow_by_itself() -> None:
    assert named({**SLOW, LAST: 0.2}, {}) == {ACROSS, LAST}


def test_a_link_that_is_just_not_slow_explains_those_after_it() -> None:
    assert named({ACROSS: 0.94, FAR: 0.9, LAST: 0.9}, {}) == set()
    assert named({ACROSS: 0.98, FAR: 0.9, LAST: 0.9}, {}) == {FAR}


def test_what_a_named_link_lets_through_is_not_named_while_it_is_faster_for_a_moment() -> None:
    assert named({ACROSS: 0.97, FAR: 0.8, LAST: 0.8}, {}, active=(ACROSS,)) == set()


def test_both_ways_of_one_cable_are_slow_by_themselves() -> None:
    assert named({UP: 0.5, DOWN: 0.5}, {}) == {UP, DOWN}


@pytest.mark.parametrize(("peak", "is_slow"), [(0.79, True), (0.99, True), (1.02, False)])
def test_peaks_are_compared_with_peaks(peak: float, is_slow: bool) -> None:
    """Windows of a few packets read a tenth more than a link carries, now as before."""
    assert (named({ACROSS: peak}, {ACROSS: LONG}, usual=1.08) == {ACROSS}) is is_slow


def test_packets_that_come_faster_than_they_leave_wait_whether_a_look_sees_them_or_not() -> None:
    assert named(SLOW, {}, looks=4) == {ACROSS}
    assert named({**SLOW, UP: 0.5}, {}, looks=4) == {UP}  # what leaves the host leaves it slowly


def test_what_a_direction_carries_back_is_not_its_own() -> None:
    """One-way traffic that gets slower: its acknowledgements do too, and nothing is wrong with their direction."""
    pair = LinkTable.named([UP, DOWN], np.full(2, np.nan), 1)
    past = {"rate": Past(lag=0)}
    for _ in range(60):
        past["rate"].add(pair.names, np.array([CAPACITY, 0.02 * CAPACITY]))
    for backlog, expected in (([1e6, 0.0], {UP}), ([0.0, 0.0], {UP}), ([1e6, 1e6], {UP, DOWN})):
        now = replace(LinkLoad.empty(2), rate_Bps=np.array([0.5, 0.01]) * CAPACITY, backlog_bytes=np.array(backlog))
        recent = deque(frame(k, pair, now) for k in range(60))
        reach = reached(pair, np.array([1.0, 0.02]) * CAPACITY, now.rate_Bps)
        context = Context(Thresholds(), Prediction(), frame(60, pair, now), recent, past=past, reach=reach)
        assert set(LinkDegraded().look(context).bad) == expected


def test_a_rate_that_nobody_states_is_never_expected() -> None:
    """A veth says 10 Gb/s and is shaped to 0.2: that is how it is, whether packets wait or not."""
    shaped = LinkTable.of([KnownLink("a tx", CAPACITY, src="a")], ["eth0"], ["tx"], 1)
    now = replace(LinkLoad.empty(1), rate_Bps=np.array([0.02 * CAPACITY]), backlog_bytes=np.array([1e5]))
    recent = deque(frame(k, shaped, now) for k in range(60))
    for speed, expected in (({"eth0": CAPACITY}, set()), ({}, {"a tx"})):
        context = Context(Thresholds(), Prediction(), frame(60, shaped, now), recent, speed_Bps=speed,
                          past={"rate": Past(lag=0)}, reach=reached(shaped, 0.02 * CAPACITY, now.rate_Bps))  # fmt: skip
        context.past["rate"].align(shaped.names)
        found = LinkDegraded().look(context)
        assert set(found.bad) == expected
        assert all("never reached" in tell().evidence[0] for tell in found.bad.values())


def test_another_run_says_what_a_link_reaches_before_this_one_has_seen_anything() -> None:
    one = LinkTable.named([UP], np.full(1, np.nan), 1)
    for share, expected in ((0.5, {UP}), (0.97, set())):
        now = replace(LinkLoad.empty(1), rate_Bps=np.array([share * CAPACITY]))
        reach = LinkReach()
        reach.look(one.names, now.rate_Bps)
        context = Context(Thresholds(), Prediction(link_reach_Bps={UP: CAPACITY}), frame(0, one, now), reach=reach,
                          past={"rate": Past(lag=0)})  # fmt: skip
        context.past["rate"].align(one.names)
        assert set(LinkDegraded().look(context).bad) == expected
