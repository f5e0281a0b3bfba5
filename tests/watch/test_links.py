"""Degraded links at every depth: named within two seconds from 10 % of the rate upward and below, wherever they are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, load
from tests.watch.test_rules import LINKS, warm

from syncline.watch.links import LinkLoad
from syncline.watch.rules.hold import Change, Hold

DEPTHS = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01)


def at_depth(depth: float, link: int, backlog: float = 1e5):  # type: ignore[no-untyped-def]
    """Return loads of a job held to the pace of one slow link: all links carry less, one of them has a queue."""

    def make(_: int) -> LinkLoad:
        of = load(LINKS, 0.5 * depth)
        of.peak_Bps[:] = CAPACITY
        of.peak_Bps[link], of.rate_Bps[link], of.backlog_bytes[link] = depth * CAPACITY, 0.9 * depth * CAPACITY, backlog
        return of

    return make


@pytest.mark.parametrize("link", [0, 3, 6])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_slow_link_is_named_at_any_depth(depth: float, link: int) -> None:
    watch = warm()
    onset = watch.onset
    watch.run(12, at_depth(depth, link), step={"comm_s": 0.1 / depth})
    ((at, place),) = watch.raised("link.degraded")
    assert place == LINKS.names[link]
    assert at - onset <= 2.0
    watch.run(80)
    assert watch.cleared("link.degraded") == [place]


def test_a_link_that_carries_nothing_while_packets_wait_is_named() -> None:
    watch = warm().run(12, at_depth(0.0, 2), quiet=True)
    assert [place for _, place in watch.raised("link.degraded")] == [LINKS.names[2]]


def test_two_slow_links_are_both_named() -> None:
    def make(_: int) -> LinkLoad:
        of: LinkLoad = at_depth(0.1, 1)(0)
        of.peak_Bps[6], of.rate_Bps[6], of.backlog_bytes[6] = 0.3 * CAPACITY, 0.1 * CAPACITY, 1e5
        return of

    watch = warm().run(12, make)
    assert {place for _, place in watch.raised("link.degraded")} == {LINKS.names[1], LINKS.names[6]}


def test_a_trickle_without_a_queue_is_named_once_the_job_is_overdue() -> None:
    watch = warm().run(20, at_depth(0.05, 5, backlog=0.0), quiet=True)
    assert LINKS.names[5] in {place for _, place in watch.raised("link.degraded")}


def test_a_slow_job_is_not_told_that_no_link_is_in_trouble() -> None:
    """While nothing is named, a link far below its past is spoken of."""
    slow = at_depth(0.4, 4, backlog=0.0)

    def make(k: int) -> LinkLoad:
        of: LinkLoad = slow(k)
        of.rate_Bps[4] = 0.05 * CAPACITY
        return of

    watch = warm().run(24, make, step={"comm_s": 0.3})
    told = [f.meaning for f in watch.engine.findings if f.rule.startswith("job.slower")]
    assert told
    assert all(f"{LINKS.names[4]} at 40% of its past" in text or "link.degraded" in text for text in told)


def test_a_quiet_link_with_a_steady_trickle_and_a_job_in_time_is_no_fault() -> None:
    quiet = lambda _: load(LINKS, 0.03, peak_Bps=np.full(8, 0.04 * CAPACITY))  # noqa: E731
    assert warm().run(60, quiet).raised("link.degraded") == []


def test_between_two_thresholds_an_alert_is_not_on_its_way_to_clear() -> None:
    """What is neither bad nor good must begin the wait for a clear anew."""
    hold = Hold(0.0, 2.0)
    assert [c for _, c, _ in hold.update(0.0, {"x"})] == [Change.RAISED]
    assert list(hold.update(1.0, set())) == []  # good since 1
    assert list(hold.update(2.5, set(), {"x"})) == []  # between: the wait starts over
    assert list(hold.update(3.5, set())) == []  # good since 3.5, not since 1
    assert list(hold.update(5.0, set())) == []
    assert [c for _, c, _ in hold.update(5.6, set())] == [Change.CLEARED]
