"""One cause, its effects beneath: who may explain whom, from when on, and who is surest."""

from __future__ import annotations

import pytest

from syncline.finding import Finding, Severity
from syncline.watch.rules.cause import causes

RAILS = {"a -> leaf-0": 0, "b -> leaf-1": 1}


def alert(rule: str, place: str = "job", since_s: float | None = 100.0) -> Finding:
    return Finding(rule, Severity.WARNING, place, "seen", "not seen", since_s=since_s)


@pytest.mark.parametrize(("later_s", "is_cause"), [(-50.0, True), (0.0, True), (30.0, True), (30.1, False)])
def test_a_job_is_slowed_by_what_began_at_most_half_a_minute_later(later_s: float, is_cause: bool) -> None:
    link = alert("link.degraded", "a -> leaf-0", 100.0 + later_s)
    found = causes([alert("job.slower"), link], RAILS)
    assert found == ({("job.slower", "job"): ("link.degraded", "a -> leaf-0")} if is_cause else {})


def test_a_dead_rail_explains_its_own_links_only_and_nothing_explains_it() -> None:
    rail = alert("rail.dead", "rail 0", 500.0)
    own, other = alert("link.errors", "a -> leaf-0"), alert("link.errors", "b -> leaf-1")
    assert causes([own, other, rail], RAILS) == {("link.errors", "a -> leaf-0"): ("rail.dead", "rail 0")}


def test_the_surest_cause_is_named_whatever_the_order() -> None:
    loss, down = alert("link.loss", "b -> leaf-1"), alert("link.down", "a -> leaf-0")
    for order in ([loss, down], [down, loss]):
        assert (
            causes([alert("host.retransmissions", "host"), *order], {})["host.retransmissions", "host"][0]
            == "link.down"
        )


def test_a_straggler_is_a_cause_and_no_effect() -> None:
    late, link = alert("job.straggler", "rank 3"), alert("link.loss", "a -> leaf-0")
    found = causes([late, link, alert("job.tail")], RAILS)
    assert found == {("job.tail", "job"): ("link.loss", "a -> leaf-0")}
    assert causes([late, alert("job.tail")], {}) == {("job.tail", "job"): ("job.straggler", "rank 3")}


@pytest.mark.parametrize(
    ("loss_s", "slow_s", "first"), [(90.0, 100.0, "loss"), (100.0, 90.0, "degraded"), (5.0, 5.0, "degraded")]
)
def test_of_loss_and_slowness_on_one_link_the_earlier_is_the_cause(loss_s: float, slow_s: float, first: str) -> None:
    pair = [alert("link.loss", "x", loss_s), alert("link.degraded", "x", slow_s)]
    second = "degraded" if first == "loss" else "loss"
    assert causes(pair, {}) == {(f"link.{second}", "x"): (f"link.{first}", "x")}
    apart = [alert("link.loss", "x", loss_s), alert("link.degraded", "y", slow_s)]
    assert causes(apart, {}) == {}


def test_the_cause_of_a_cause_is_named() -> None:
    slow, loss = alert("link.degraded", "x", 100.0), alert("link.loss", "x", 90.0)
    found = causes([alert("link.pause", "y"), slow, loss], {})
    assert found["link.pause", "y"] == ("link.loss", "x")


def test_what_is_no_effect_of_links_has_no_cause() -> None:
    assert causes([alert("link.down", "x"), alert("link.microburst", "y"), alert("link.errors", "z")], {}) == {}


def test_what_began_at_an_unknown_time_was_there_from_the_start() -> None:
    unknown, known = alert("link.degraded", "x", None), alert("link.loss", "x", 0.5)
    assert causes([unknown, known], {}) == {("link.loss", "x"): ("link.degraded", "x")}
    assert causes([alert("link.degraded", "x", 0.5), alert("link.loss", "x", None)], {}) == {
        ("link.degraded", "x"): ("link.loss", "x")
    }
    job, late = alert("job.slower", "job", None), alert("link.down", "y", 30.5)
    assert causes([job, late], {}) == {}
    assert causes([job, alert("link.down", "y", 30.0)], {}) == {("job.slower", "job"): ("link.down", "y")}
    paused, first, second = (
        alert("link.pause", "z"),
        alert("link.degraded", "y", 0.5),
        alert("link.degraded", "x", None),
    )
    assert causes([paused, first, second], {})["link.pause", "z"] == ("link.degraded", "x")


def test_only_a_dead_rail_explains_by_rail_and_only_roots_explain() -> None:
    crowded = alert("link.pause", "rail 0")  # another rule that speaks of the whole rail
    assert causes([alert("link.errors", "a -> leaf-0"), crowded], RAILS) == {}
    assert causes([alert("job.slower"), alert("job.tail")], {}) == {}


def test_two_alerts_of_one_link_and_moment_do_not_explain_themselves() -> None:
    assert causes([alert("link.loss", "x", 5.0), alert("link.loss", "x", 4.0)], {}) == {}
