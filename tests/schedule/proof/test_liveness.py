from __future__ import annotations

import pytest

from syncline.errors import NotProvedError
from syncline.schedule.proof.liveness import Clocks, Task, run


def test_sends_are_buffered_and_received_in_order() -> None:
    threads = [[Task("a0", sends="ab"), Task("a1", sends="ab")], [Task("b0", receives="ab"), Task("b1", receives="ab")]]
    order = run(threads)
    assert order.sender == {(1, 0): (0, 0), (1, 1): (0, 1)}
    clocks = Clocks(threads, order)
    assert clocks.before((0, 0), (1, 0))
    assert not clocks.before((0, 1), (1, 0))
    assert not clocks.before((1, 0), (0, 1))


def test_a_circle_of_waits_is_named() -> None:
    threads = [[Task("a", waits=((1, 0),))], [Task("b", waits=((0, 0),))]]
    with pytest.raises(NotProvedError) as caught:
        run(threads)
    assert str(caught.value).startswith("a waits for ever: deadlock.\n  a waits for b; b waits for a.")


def test_data_that_nobody_receives_is_refused() -> None:
    with pytest.raises(NotProvedError, match="a sends data that nobody receives"):
        run([[Task("a", sends="x")]])
