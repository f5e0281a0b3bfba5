from __future__ import annotations

import pytest

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule.proof import liveness
from syncline.schedule.proof.liveness import Clocks, ThreadStep, run


def test_sends_are_buffered_and_received_in_order() -> None:
    threads = [
        [ThreadStep("a0", sends="ab"), ThreadStep("a1", sends="ab")],
        [ThreadStep("b0", receives="ab"), ThreadStep("b1", receives="ab")],
    ]
    order = run(threads)
    assert order.sender == {(1, 0): (0, 0), (1, 1): (0, 1)}
    clocks = Clocks(threads, order)
    assert clocks.before((0, 0), (1, 0))
    assert not clocks.before((0, 1), (1, 0))
    assert not clocks.before((1, 0), (0, 1))


def test_a_circle_of_waits_is_named() -> None:
    threads = [[ThreadStep("a", waits=((1, 0),))], [ThreadStep("b", waits=((0, 0),))]]
    with pytest.raises(NotProvedError) as caught:
        run(threads)
    assert str(caught.value).startswith("a waits forever: deadlock.\n  a waits for b; b waits for a.")


def test_data_that_nobody_receives_is_refused() -> None:
    with pytest.raises(NotProvedError, match="a sends data that no rank receives"):
        run([[ThreadStep("a", sends="x")]])


def test_an_earlier_thread_may_wait_for_a_later_one() -> None:
    threads = [
        [ThreadStep("a", receives="ba"), ThreadStep("c", sends="ab")],
        [ThreadStep("b", sends="ba"), ThreadStep("d", receives="ab")],
    ]
    order = run(threads)
    assert order.steps == ((1, 0), (0, 0), (0, 1), (1, 1))
    clocks = Clocks(threads, order)
    assert clocks.before((1, 0), (1, 1)) and clocks.before((1, 0), (0, 1)) and not clocks.before((0, 1), (0, 0))


def test_what_a_thread_has_learned_it_knows_later() -> None:
    threads = [[ThreadStep("a")], [ThreadStep("b", waits=((0, 0),)), ThreadStep("c")]]
    assert Clocks(threads, run(threads)).before((0, 0), (1, 1))


def test_data_that_nobody_sends_is_named() -> None:
    with pytest.raises(NotProvedError, match="a waits for data from x"):
        run([[ThreadStep("a", receives="x")]])


@pytest.mark.parametrize(("num", "end"), [(6, "t5 waits for t0."), (7, "t5 waits for t6; and 1 more.")])
def test_six_of_those_that_wait_are_named(num: int, end: str) -> None:
    circle = [[ThreadStep(f"t{k}", waits=(((k + 1) % num, 0),))] for k in range(num)]
    with pytest.raises(NotProvedError) as caught:
        run(circle)
    assert str(caught.value).splitlines()[1].endswith(end)


def test_too_many_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [[ThreadStep("a"), ThreadStep("b")], [ThreadStep("c", waits=((0, 1),))]]
    monkeypatch.setattr(liveness, "MAX_CLOCKS", 6)
    Clocks(threads, run(threads))
    monkeypatch.setattr(liveness, "MAX_CLOCKS", 5)
    with pytest.raises(ScheduleError, match="3 steps in 2 threads are too many to order"):
        Clocks(threads, run(threads))


def test_threads_that_nothing_joins_have_clocks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [[ThreadStep("a"), ThreadStep("b")], [ThreadStep("c")], [ThreadStep("d", waits=((1, 0),))]]
    monkeypatch.setattr(liveness, "MAX_CLOCKS", 2 * 1 + 2 * 2)
    clocks = Clocks(threads, run(threads))
    assert clocks.before((0, 0), (0, 1)) and clocks.before((1, 0), (2, 0))
    assert not clocks.before((0, 0), (1, 0)) and not clocks.before((2, 0), (0, 1))
