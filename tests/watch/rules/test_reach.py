"""What a link reaches: a floor learnt from its own past, as far below the middle as the past itself varied."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.watch.rules.reach import LinkReach

RATE = 1e9


@pytest.mark.parametrize(("lows", "share", "is_low"), [
    ((1.0,), 0.94, False), ((1.0,), 0.92, True),
    ((1.0, 0.8), 0.80, False), ((1.0, 0.8), 0.62, False), ((1.0, 0.8), 0.55, True),
])  # fmt: skip
def test_a_link_whose_past_varied_may_vary_as_much_again(lows: tuple[float, ...], share: float, is_low: bool) -> None:
    """Blocks of three seconds take turns; the floor of 1, 0.8, 1, 0.8 is 0.8 times 0.8 over their middle."""
    reach, names = LinkReach(), ("link",)
    for look in range(240):
        reach.look(names, np.array([RATE * lows[look // 12 % len(lows)]]))
        reach.learn(False)
    for _ in range(3):
        reach.look(names, np.array([RATE * share]))
    assert bool(reach.fallen(np.full(1, np.nan), np.zeros(1, bool))[0][0]) is is_low


@pytest.mark.parametrize(("waits", "is_low"), [(True, True), (False, False)])
def test_what_a_link_reaches_while_packets_wait_is_no_lower_in_a_checkpoint(waits: bool, is_low: bool) -> None:
    """Training fills the link for two seconds of four; a checkpoint of ten takes a third of it, and nothing waits."""
    reach, names = LinkReach(), ("link",)
    for look in range(480):
        in_step = look % 80 < 40 and look % 16 < 8
        rate = RATE if in_step else RATE / 3
        reach.look(names, np.array([rate]), np.array([1e5 if in_step else 0.0]))
        reach.learn(False)
    for _ in range(3):
        reach.look(names, np.array([RATE / 3]), np.array([1e5]))
    assert bool(reach.fallen(np.full(1, np.nan), np.array([waits]))[0][0]) is is_low
