"""Who is late: counted by steps, and only when it lasts."""

from __future__ import annotations

from syncline.watch.lateness import MAX_STEPS, Lateness


def steps(
    late: Lateness, count: int, late_s: float, *, first: int = 0, collectives: int = 1, step_s: float = 0.5
) -> None:
    """Tell of steps in which rank 1 is late by so much to every collective."""
    for step in range(first, first + count):
        for _ in range(collectives):
            late.add(step, step * step_s, {0: 0.0, 1: late_s})


def test_three_late_steps_make_a_late_rank() -> None:
    late = Lateness()
    steps(late, 2, 0.1)
    assert late.over(0.75) == {}
    steps(late, 1, 0.1, first=2)
    assert late.over(0.75) == {0: 0.0, 1: 0.1}


def test_one_slow_step_of_many_collectives_does_not() -> None:
    late = Lateness()
    steps(late, 5, 0.0, collectives=50)
    steps(late, 1, 0.5, first=5, collectives=50)
    assert late.over(0.75)[1] == 0.0


def test_of_short_steps_many_decide() -> None:
    late = Lateness()
    steps(late, 100, 0.0, step_s=0.01)
    steps(late, 30, 0.1, first=100, step_s=0.01)
    assert late.over(0.75)[1] == 0.0
    steps(late, 40, 0.1, first=130, step_s=0.01)
    assert late.over(0.75)[1] == 0.1


def test_collectives_of_no_known_step_count_as_steps_and_memory_is_bounded() -> None:
    late = Lateness()
    for k in range(3 * MAX_STEPS):
        late.add(-1, float(k), {0: 0.2, 1: 0.0})
    assert late.over(0.75) == {0: 0.2, 1: 0.0}
    assert len(late._steps) == MAX_STEPS
