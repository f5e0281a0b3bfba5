"""The course of a choice on numbers made up: tried, held, noticed, decided anew, and never twice for one change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from tests.program.test_choice import at

from syncline.codec.names import PLAIN
from syncline.runtime.auto.pilot import Pilot, best_s, typical_s


@cache
def predicted_s(rate_bps: float, codec: str) -> float:
    return at(rate_bps).predict(codec)


def run(
    pilot: Pilot,
    rate_bps: float,
    steps: int,
    slower: dict[str, float] | None = None,
    wobble: Callable[[int], float] = lambda number: 1.0,
) -> list[str]:
    """Play steps that take what is predicted (or more, by codec and by number); return the codecs of each."""
    used = []
    for number in range(steps):
        used.append(pilot.codec)
        if not pilot.due():
            continue
        measured = at(rate_bps)
        took = predicted_s(rate_bps, pilot.codec) * (slower or {}).get(pilot.codec, 1.0) * wobble(number)
        if pilot.wants_work:
            pilot.decide(measured)
        elif pilot.phase == "try":
            pilot.tried(took)
        elif pilot.checked(took):
            pilot.looked(measured.rate_Bps)
    return used


def test_it_measures_tries_and_holds() -> None:
    pilot = Pilot("safe", "int8")
    run(pilot, 1e9, 30)
    assert pilot.phase == "hold"
    assert pilot.num_decisions == 1
    assert pilot.codec == "int8"
    assert set(pilot.trials) >= {pilot.choice.codec} if pilot.choice else False
    assert "measured:" in pilot.why()


def test_a_slow_choice_falls_back_to_plain_and_says_so() -> None:
    pilot = Pilot("safe", "int8")
    run(pilot, 2e9, 30, dict.fromkeys(("int8", "bf16", "fp32"), 9.0))
    assert pilot.codec == PLAIN
    assert "fell back to plain DDP, which is faster" in pilot.why()


def test_what_trials_cannot_tell_from_plain_is_tried_twice_and_must_be_worth_it() -> None:
    """At 3 % faster plain is held, at 30 % the codec is, after one trial; one bad trial of plain is made good."""

    def settled(coded_s: float, plain_s: Sequence[float]) -> tuple[Pilot, list[str]]:
        pilot, used, left = Pilot("safe", "int8"), [], list(plain_s)
        pilot.decide(at(1e9))
        while pilot.phase == "try":
            used.append(pilot.codec)
            pilot.tried(coded_s if used[-1] != PLAIN else left.pop(0))
        return pilot, used

    pilot, used = settled(0.97, [1.0, 1.0])
    assert pilot.codec == PLAIN and used.count(PLAIN) == 2
    assert "fell back to plain DDP, which is as fast within 5%" in pilot.why()
    pilot, used = settled(0.7, [1.0])
    assert pilot.codec != PLAIN and used.count(PLAIN) == 1
    pilot, used = settled(1.0, [1.08, 0.9])
    assert pilot.codec == PLAIN and "fell back to plain DDP, which is faster" in pilot.why()


def test_a_slower_network_is_answered_within_20_steps_and_once() -> None:
    pilot = Pilot("aggressive", "int8")
    run(pilot, 1e9, 40)
    before, decisions = pilot.codec, pilot.num_decisions
    used = run(pilot, 5e7, 20)
    assert pilot.num_decisions == decisions + 1
    assert used[-1] != before
    run(pilot, 5e7, 200)
    assert pilot.num_decisions == decisions + 1
    assert pilot.phase == "hold"
    assert "the network went from 1 Gb/s to 50 Mb/s" in pilot.why()


def test_a_faster_network_is_found_by_looking_now_and_then() -> None:
    pilot = Pilot("aggressive", "sign")
    run(pilot, 5e7, 40)
    slow = pilot.codec
    run(pilot, 100e9, 260)
    assert pilot.codec != slow


def test_a_rate_that_wobbles_changes_nothing() -> None:
    pilot = Pilot("safe", "int8")
    run(pilot, 1e9, 40)
    decisions = pilot.num_decisions
    for wobble in (1.2, 0.85, 1.15, 0.9) * 5:
        run(pilot, 1e9 * wobble, 10)
    assert pilot.num_decisions == decisions


def test_steps_that_differ_for_other_reasons_are_looked_at_ever_more_rarely() -> None:
    pilot = Pilot("safe", "int8")
    run(pilot, 1e9, 40)
    used = run(pilot, 1e9, 400, wobble=lambda number: 1.0 + 0.5 * (number // 5 % 2))
    assert pilot.num_decisions == 1
    assert used.count(PLAIN) <= 8 * 4, "tried again, ever more rarely"


def test_a_codec_that_becomes_slow_for_other_reasons_loses_to_plain_and_may_come_back() -> None:
    pilot = Pilot("safe", "int8")
    run(pilot, 1e9, 40)
    held = pilot.codec
    assert held != PLAIN
    run(pilot, 1e9, 40, slower=dict.fromkeys((held, "int8", "bf16", "fp32"), 5.0))
    assert pilot.codec == PLAIN
    assert "fell back to plain DDP, which is faster" in pilot.why()
    run(pilot, 1e9, 40, wobble=lambda number: 0.5)
    assert pilot.codec == held


def test_a_fast_link_whose_rate_is_hard_to_measure_is_left_to_plain() -> None:
    pilot = Pilot("safe", PLAIN)
    run(pilot, 40e9, 40)
    looks = 0
    for number in range(400):
        if pilot.due() and pilot.checked(pilot._baseline_s * (1.4 if number % 2 else 0.7)):
            looks += 1
            pilot.looked(5e9 * (0.6 if looks % 2 else 1.6))
        assert pilot.codec == PLAIN
    assert pilot.num_decisions == 1
    assert looks <= 8


def test_plain_that_cannot_be_faster_is_not_tried() -> None:
    pilot = Pilot("aggressive", "sign")
    used = run(pilot, 5e7, 40)
    assert PLAIN not in used
    assert "plain not tried (its bytes alone take" in pilot.why()


def test_exact_is_exact_all_the_way() -> None:
    pilot = Pilot("exact", PLAIN)
    assert set(run(pilot, 5e7, 60)) == {PLAIN}


def test_drift_takes_a_class_away() -> None:
    pilot = Pilot("aggressive", "sign")
    run(pilot, 5e7, 40)
    assert pilot.dense_extra > 1
    pilot.drifted("the loss rose")
    assert pilot.accuracy == "safe"
    run(pilot, 5e7, 40)
    assert pilot.codec in {PLAIN, "bf16", "int8"}
    assert "the loss rose: accuracy is now safe, not aggressive" in pilot.why()


def test_drift_takes_two_classes_where_the_lower_one_has_the_codec_too_and_none_where_nothing_is_lost() -> None:
    pilot = Pilot("aggressive", "int8")
    run(pilot, 1e9, 30)
    pilot.codec = "int8"
    pilot.drifted("the loss rose")
    assert pilot.accuracy == "exact"
    run(pilot, 1e9, 30)
    assert pilot.dense_extra == 0
    before = list(pilot.notes)
    pilot.drifted("the loss rose")
    assert pilot.notes == before


def test_plain_that_is_as_fast_is_taken() -> None:
    pilot = Pilot("safe", "int8")
    pilot.decide(at(1e9))
    assert pilot.choice is not None
    while pilot.phase == "try":
        pilot.tried(0.99 if pilot.codec == PLAIN else 1.0)
    assert pilot.codec == PLAIN


def test_looks_at_the_link_are_rarer_where_steps_are_short() -> None:
    def looks(look_s: float) -> int:
        pilot = Pilot("safe", "int8")
        run(pilot, 1e9, 40)
        step_s, count = pilot._baseline_s, 0
        for _ in range(2000):
            if pilot.due() and pilot.checked(step_s):
                count += 1
                pilot.looked(125e6, look_s)
        return count

    assert looks(0.0) == 10
    assert looks(1e6) == 1


def test_what_a_step_takes() -> None:
    assert typical_s([[1.0, 5.0, 2.0], [1.0, 1.0, 1.0]]) == 2.0
    assert best_s([[1.0, 5.0], [3.0, 1.0]]) == 3.0
    assert replace(at(1e9), num_ranks=2).sent_s(PLAIN) == 4 * 24_000_000 / 125e6
