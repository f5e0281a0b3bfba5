"""The runtime's own rate limit: when messages are handed over, in which order, and what is raised where."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from syncline.errors import SynchronizationError
from syncline.lab.profile import Profile
from syncline.runtime.alive.pace import Pace, PacedWork, check_rate

RATE = 1e6


class Handed:
    """A message that a backend has taken."""

    def wait(self, timeout: timedelta | None = None) -> None:
        assert timeout is None or timeout > timedelta(0)


@pytest.fixture
def pace() -> Iterator[Pace]:
    made = Pace(RATE, burst_bytes=10_000)
    yield made
    made.close()


def test_messages_leave_in_order_and_none_before_its_last_byte(pace: Pace) -> None:
    left: list[tuple[int, float]] = []
    began = time.monotonic()

    def post(number: int) -> Handed:
        left.append((number, time.monotonic() - began))
        return Handed()

    works = [pace.send(lambda number=number: post(number), 50_000) for number in range(3)]  # type: ignore[misc]
    assert not left  # sending returns at once
    for work in works:
        work.wait(timedelta(seconds=30))
    assert [number for number, _ in left] == [0, 1, 2]
    # An idle link lets its burst through for nothing, once.
    for number, moment in left:
        assert moment >= (50_000 * (number + 1) - 10_000) / RATE - 1e-4


def test_a_small_message_on_an_idle_link_leaves_at_once_and_credit_does_not_pile_up() -> None:
    pace = Pace(1e4, burst_bytes=10_000)  # a second: so long that nobody is kept from the processor
    time.sleep(0.05)
    first, second = pace.send(Handed, 10_000), pace.send(Handed, 10_000)
    assert first.due_s <= time.monotonic()
    assert second.due_s - first.due_s == pytest.approx(1.0)
    pace.close()
    second.wait()


def test_what_the_backend_raises_is_raised_by_the_wait_and_the_next_goes_on(pace: Pace) -> None:
    def broken() -> Handed:
        raise RuntimeError("connection reset by peer")

    failed, good = pace.send(broken, 10), pace.send(Handed, 10)
    with pytest.raises(RuntimeError, match="connection reset"):
        failed.wait()
    good.wait()


def test_a_wait_ends_at_its_time_and_closing_hands_over_what_waits() -> None:
    pace, handed = Pace(RATE), threading.Event()

    def post() -> Handed:
        handed.set()
        return Handed()

    work = pace.send(post, 200_000)
    with pytest.raises(TimeoutError, match="rate limit"):
        work.wait(timedelta(milliseconds=1))
    pace.close()
    assert handed.is_set()
    work.wait()


def test_the_backend_gets_what_is_left_of_the_time() -> None:
    given: list[timedelta | None] = []

    class Noted:
        def wait(self, timeout: timedelta | None = None) -> None:
            given.append(timeout)

    work = PacedWork(Noted, 0.0)
    work.hand_over()
    work.wait(timedelta(seconds=600))
    work.wait()
    assert given[0] is not None and timedelta(0) < given[0] < timedelta(seconds=600) and given[1] is None
    assert given[0] > timedelta(seconds=1)


def test_a_burst_is_that_of_an_emulated_link_and_any_rate_above_nothing_is_one() -> None:
    pace = Pace(0.5)
    assert (pace.burst_bytes, check_rate(0.5)) == (Profile().burst_bytes, 0.5)
    assert pace._thread.daemon  # a run that ends does not wait for it
    pace.close()


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    with pytest.raises(SynchronizationError, match="must be a rate above 0"):
        Pace(rate)
