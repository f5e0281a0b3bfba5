"""The course of a choice on numbers made up: all have turns, the fastest is held, and tried again when steps change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from syncline.codec.names import PLAIN
from syncline.runtime.auto.pilot import FIRST_PATIENCE, LAST_PATIENCE, Pilot, shortest_s, typical_s

SLOW_LINK = {"plain": 1.2, "bf16": 0.8, "int8": 0.5}
FAST_LINK = {"plain": 0.1, "bf16": 0.11, "int8": 0.12}


def run(
    pilot: Pilot, takes: Mapping[str, float], steps: int, wobble: Callable[[int], float] = lambda number: 1.0
) -> list[str]:
    """Play steps that take what is said (or more, by number); return the codec of each."""
    used = []
    for number in range(steps):
        used.append(pilot.codec)
        if pilot.due():
            took = takes[pilot.codec] * wobble(number)
            (pilot.tried if pilot.phase == "try" else pilot.checked)(took)
    return used


def test_each_has_its_turns_and_the_fastest_is_held() -> None:
    pilot = Pilot()
    used = run(pilot, SLOW_LINK | {"plain": 0.7}, 60)
    assert used[:11] == ["plain"] * 5 + ["bf16"] * 3 + ["int8"] * 3, "two warm-up steps before the first turn"
    assert (pilot.phase, pilot.codec, pilot.num_trials) == ("hold", "int8", 1)
    assert pilot.why() == "int8: steps took 700 ms in plain, 800 ms in bf16, 500 ms in int8; 29% shorter than plain"


def test_who_is_hopeless_has_one_turn() -> None:
    used = run(Pilot(), SLOW_LINK, 60)
    assert used.count("plain") == 5 and used.count("bf16") == 12


@pytest.mark.parametrize(("int8_s", "held"), [(0.97, "plain"), (0.92, "plain"), (0.8, "int8")])
def test_what_loses_more_must_be_worth_it(int8_s: float, held: str) -> None:
    pilot = Pilot()
    run(pilot, {"plain": 1.0, "bf16": 1.0, "int8": int8_s}, 60)
    assert pilot.codec == held
    assert (held == PLAIN) == ("no codec makes it 10% shorter" in pilot.why())


def test_int8_must_be_worth_it_beside_bf16_too() -> None:
    pilot = Pilot()
    run(pilot, {"plain": 1.0, "bf16": 0.6, "int8": 0.57}, 60)
    assert pilot.codec == "bf16"


def test_what_is_shorter_in_one_round_and_not_in_another_is_noise() -> None:
    for bad in (range(5), range(11, 14)):  # the first or the second turn of plain
        pilot = Pilot()
        run(pilot, {"plain": 1.0, "bf16": 1.0, "int8": 0.97}, 60, lambda number: 1.3 if number in bad else 1.0)  # noqa: B023
        assert pilot.codec == PLAIN
        assert len(pilot.trials["plain"]) == 4


@pytest.mark.parametrize("second", [SLOW_LINK, {"plain": 20.0, "bf16": 10.0, "int8": 5.0}])
def test_a_network_that_became_slower_is_answered_soon_and_once(second: dict[str, float]) -> None:
    pilot = Pilot()
    run(pilot, FAST_LINK, 100)
    assert pilot.codec == PLAIN
    used = run(pilot, second, 30 + 38)
    assert used[-1] == "int8" and pilot.num_trials == 2
    assert "tried again as steps went from 100 ms to " in pilot.why()
    run(pilot, second, 300)
    assert (pilot.num_trials, pilot.phase) == (2, "hold")


def test_a_network_that_became_faster_is_found_by_its_shorter_steps() -> None:
    pilot = Pilot()
    run(pilot, SLOW_LINK, 80)
    run(pilot, FAST_LINK, 90)
    assert (pilot.codec, pilot.num_trials) == (PLAIN, 2)


def test_one_check_that_is_off_changes_nothing() -> None:
    pilot = Pilot()
    run(pilot, SLOW_LINK, 400, lambda number: 2.0 if number % 40 == 39 else 1.0)
    assert pilot.num_trials == 1


def test_steps_that_wobble_change_nothing() -> None:
    pilot = Pilot()
    run(pilot, SLOW_LINK, 400, lambda number: 1.0 + 0.12 * (number % 3 - 1))
    assert pilot.num_trials == 1


def test_steps_that_change_for_other_reasons_are_tried_ever_more_rarely() -> None:
    pilot = Pilot()
    run(pilot, SLOW_LINK, 4000, lambda number: 1.0 + 0.5 * (number // 50 % 2))
    assert 3 <= pilot.num_trials <= 4000 / LAST_PATIENCE + 6
    assert FIRST_PATIENCE < LAST_PATIENCE


def test_what_was_held_before_a_restart_has_the_first_turn() -> None:
    pilot = Pilot()
    pilot.resume("int8")
    assert run(pilot, {"plain": 1.0, "bf16": 1.0, "int8": 0.95}, 60)[:5] == ["int8"] * 5
    assert pilot.codec == PLAIN, "who loses least is still who loses least"


def test_a_trial_takes_the_shortest_step_and_a_check_the_usual_one() -> None:
    assert shortest_s([[1.0, 3.0], [2.0, 1.0]]) == 2.0
    assert typical_s([[1.0, 9.0, 2.0], [3.0, 3.0, 3.0]]) == 3.0


@pytest.mark.parametrize("takes", [FAST_LINK, SLOW_LINK, {"plain": 1.0, "bf16": 0.97, "int8": 0.95}])
def test_identical_runs_decide_alike_though_steps_vary(takes: Mapping[str, float]) -> None:
    """Steps vary by a tenth, and one in ten is half as long again: nineteen of twenty runs hold the same."""
    decided: Counter[str] = Counter()
    for seed in range(200):
        draws, pilot = random.Random(seed), Pilot()
        while pilot.phase == "try":
            if pilot.due():
                longer = [1.5 if draws.random() < 0.1 else 1.0 for _ in range(2)]
                pilot.tried(takes[pilot.codec] * min(draws.lognormvariate(0.0, 0.1) * more for more in longer))
        decided[pilot.codec] += 1
    assert max(decided.values()) >= 190
