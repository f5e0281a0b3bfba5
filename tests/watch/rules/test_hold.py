"""Hysteresis by hand: between two thresholds nothing changes, neither towards an alert nor away from one."""

from __future__ import annotations

from syncline.watch.rules.hold import Change, Hold


def run(hold: Hold, levels: str, start_s: float = 0.0) -> list[tuple[float, Change, float]]:
    """Return (when, what, since) for a level a second: b(ad), m(iddle), g(ood), x (bad and middle at once)."""
    found = []
    for k, level in enumerate(levels):
        now = start_s + k
        bad, between = ["p"] * (level in "bx"), ["p"] * (level in "mx")
        found += [(now, change, since) for _, change, since in hold.update(now, bad, between)]
    return found


def test_an_alert_between_the_thresholds_stays_however_long() -> None:
    hold = Hold(2.0, 3.0)
    assert run(hold, "bbb") == [(2.0, Change.RAISED, 0.0)]
    assert run(hold, "m" * 50, 3.0) == []
    assert hold.active() == {"p"}


def test_good_time_is_counted_anew_after_a_moment_between_or_bad() -> None:
    for disturbance in "mbx":
        hold = Hold(0.0, 3.0)
        run(hold, "b")
        assert run(hold, "ggg" + disturbance + "ggg", 1.0) == []
        assert run(hold, "g", 8.0) == [(8.0, Change.CLEARED, 0.0)]
        assert hold.active() == set()


def test_bad_time_is_counted_anew_after_a_moment_between_or_good() -> None:
    for relief in "mg":
        hold = Hold(2.0, 3.0)
        assert run(hold, "bb" + relief + "bb") == []
        assert run(hold, "b", 5.0) == [(5.0, Change.RAISED, 3.0)]


def test_a_place_that_is_called_both_is_bad() -> None:
    assert run(Hold(2.0, 3.0), "xxx") == [(2.0, Change.RAISED, 0.0)]


def test_times_are_met_exactly_and_places_do_not_touch_each_other() -> None:
    hold = Hold(1.0, 1.0)
    assert list(hold.update(0.0, ["a"])) == []
    assert list(hold.update(0.99, ["a", "b"])) == []
    assert list(hold.update(1.0, ["a", "b"])) == [("a", Change.RAISED, 0.0)]
    assert list(hold.update(1.5, ["b"])) == []
    assert set(hold.update(2.5, ["b"])) == {("a", Change.CLEARED, 0.0), ("b", Change.RAISED, 0.99)}
    assert hold.active() == {"b"}
