"""An incident: effects below their cause, ending with it; opened again within a minute it is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.finding import Severity
from syncline.watch.fleet.fleet import _plausible as plausible
from syncline.watch.fleet.fleet import told_apart
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.incident import ECHO_S, SAME_S, Incident, IncidentBook, hung
from syncline.watch.links import LinkLoad, LinkTable

LINK = Incident("link.degraded", Severity.CRITICAL, "a -> b", "at most 1 Gb/s", since_s=100.0, cost_usd_per_day=24.0)
STEP = Incident("job.slower-than-before", Severity.WARNING, "step", "2 s", since_s=101.0, cost_usd_per_day=48.0)


def test_effects_hang_below_their_cause_which_costs_what_the_dearest_costs() -> None:
    (found,) = hung([STEP, LINK], {})
    assert (found.key, [effect.key for effect in found.effects]) == (LINK.key, [STEP.key])
    assert found.cost_usd_per_hour == 2.0
    plain = found.to_json()
    assert [row["rule"] for row in plain["effects"]] == ["job.slower-than-before"]  # type: ignore[index,union-attr,call-overload]


def test_effects_end_with_their_cause_unless_they_last() -> None:
    book = IncidentBook()
    book.update([LINK, STEP], {}, 110.0)
    assert book.update([STEP], {}, 111.0) == ()
    assert book.update([STEP], {}, 110.0 + ECHO_S) == ()
    (found,) = book.update([STEP], {}, 111.0 + ECHO_S)
    assert found.rule == STEP.rule  # by now it is something of its own


@pytest.mark.parametrize(("gap_s", "since_s", "times"), [(SAME_S - 1, 100.0, 2), (SAME_S + 1, 300.0, 1)])
def test_what_opens_again_within_a_minute_is_the_same_incident(gap_s: float, since_s: float, times: int) -> None:
    book = IncidentBook()
    (first,) = book.update([LINK], {}, 110.0)
    assert (first.since_s, first.times) == (100.0, 1)
    book.update([], {}, 110.25)
    (again,) = book.update([replace(LINK, since_s=300.0)], {}, 110.0 + gap_s)
    assert (again.since_s, again.times) == (since_s, times)


def test_a_cost_that_the_hosts_cannot_have_does_not_rank() -> None:
    mad = plausible(replace(LINK, cost_usd_per_day=24e12, effects=(replace(STEP, cost_usd_per_day=24e12),)), 1e6)
    assert (mad.cost_usd_per_day, mad.effects[0].cost_usd_per_day) == (None, None)
    assert "$1e+12 an hour, which these hosts cannot" in mad.evidence[-1]
    assert plausible(LINK, 1e6) == LINK
    assert hung([mad, replace(LINK, place="c -> d")], {})[0].place == "c -> d"


def test_agents_that_give_the_same_host_name_are_told_apart() -> None:
    empty = (LinkTable.named((), np.zeros(0), 1), LinkLoad.empty(0))
    parts = [
        HostFrame(host, 1.0, *empty, agent=agent) for host, agent in (("x", "http://a"), ("x", "http://b"), ("y", ""))
    ]
    assert told_apart(parts) == ["x at http://a", "x at http://b", "y"]
