"""Parts of the link rules by hand."""

from __future__ import annotations

from collections import deque

import pytest
from tests.watch.scenes import frame, load, table

from syncline.watch.burst import Burst
from syncline.watch.prediction import Prediction
from syncline.watch.rules.link_rules import LinkMicroburst, _touches
from syncline.watch.rules.rule import Context
from syncline.watch.rules.thresholds import Thresholds

LINKS = table(4, num_rails=1)
COLLECTIVE = (99.0, 99.5)


@pytest.mark.parametrize(
    ("start_s", "is_foreign"),
    [
        (98.90, True),  # over 89 ms before the collective
        (98.975, False),  # 15 ms before it, within the slack of clocks and looks
        (99.2, False),  # inside
        (99.515, False),  # 15 ms after it
        (99.53, True),  # 30 ms after it
        (97.9, True),  # in the last two seconds, just
        (97.5, False),  # longer ago
    ],
)
def test_bursts_near_a_collective_are_its_own(start_s: float, is_foreign: bool) -> None:
    burst = Burst(start_s, start_s + 0.01, 1e6)
    now = frame(1, LINKS, load(LINKS))
    name = LINKS.names[0]
    context = Context(Thresholds(), Prediction(), now, bursts={name: deque([burst])}, explained=[COLLECTIVE])
    found = LinkMicroburst()._foreign(context, name, 99.9)
    assert bool(found) is is_foreign


def test_a_time_touches_spans_at_their_ends() -> None:
    spans = [(1.0, 2.0), (4.0, 5.0)]
    for start_s, end_s, touches in (
        (0.0, 0.9, False), (0.0, 1.0, True), (1.5, 1.6, True), (2.0, 3.0, True), (2.1, 3.9, False), (3.0, 4.0, True),
        (5.0, 6.0, True), (5.1, 6.0, False), (0.0, 9.0, True),
    ):  # fmt: skip
        assert _touches(spans, start_s, end_s) is touches, (start_s, end_s)
