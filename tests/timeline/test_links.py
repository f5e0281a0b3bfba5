from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.errors import TimelineError
from syncline.timeline import LinkSamples, NamedLinks


def test_capacity_is_unknown_unless_given() -> None:
    assert np.isnan(NamedLinks(("a", "b")).capacity_Bps).all()


def test_links_are_found_by_name() -> None:
    links = NamedLinks(("a", "b"), np.array([1.0, 2.0]))
    assert links.index("b") == 1
    with pytest.raises(TimelineError, match='no link is called "c"'):
        links.index("c")


@pytest.mark.parametrize(
    ("names", "capacity", "text"),
    [
        (("a", "a"), None, 'link name "a" stands twice in its table, at 0 and 1.'),
        (("a", 3), None, "link name 1 3 is not text."),
        (("\ud800",), None, "link name 0 '\\ud800' is not valid Unicode text."),
        ("ab", None, "link names must be a list of texts, not one text."),
        (("a", "b"), [1.0, np.inf], 'links column "capacity_Bps", row 1: inf is not a rate.'),
        (("a",), [1e-300], 'links column "capacity_Bps", row 0: 1e-300 is not a rate.'),
        (("a", "b"), [-1.0, 1.0], 'links column "capacity_Bps", row 0: -1.0 is not a rate.'),
        (("a", "b"), [1.0, 2.0, 3.0], 'links column "capacity_Bps": must be 2 numbers, one for each link.'),
        (("a",), "fast", 'links column "capacity_Bps": must be 1 numbers, one for each link.'),
    ],
)
def test_a_bad_table_is_refused(names: Any, capacity: Any, text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        NamedLinks(names, capacity)
    assert str(caught.value).startswith(text)


def test_rate_is_size_over_duration_unless_stated() -> None:
    link, start, end, size = np.array([0, 0]), np.array([0.0, 1.0]), np.array([0.5, 1.0]), np.array([10.0, 4.0])
    assert LinkSamples(link, start, end, size).rate_Bps.tolist() == [20.0, 0.0]
    assert LinkSamples(link, start, end, size, np.array([25.0, 1.0])).rate_Bps.tolist() == [25.0, 1.0]


def test_a_sample_too_short_to_have_a_rate_does_not_overflow() -> None:
    samples = LinkSamples(np.array([0]), np.array([0.0]), np.array([5e-324]), np.array([1e18]))
    assert samples.rate_Bps.tolist() == [0.0]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (([0], [1.0], [0.0], [1.0]), 'samples column "end_s", row 0: ends at 0.0 s, before its start at 1.0 s.'),
        (([0], [0.0], [1.0], [-1.0]), 'samples column "size_bytes", row 0: -1.0 is below 0.'),
        (([0], [0.0], [1.0], [1.0], [np.nan]), 'samples column "rate_Bps", row 0: nan is not a finite number.'),
        (([-1], [0.0], [1.0], [1.0]), 'samples column "link", row 0: -1 is below 0.'),
    ],
)
def test_a_bad_sample_is_named(columns: tuple[Any, ...], text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        LinkSamples(*columns)
    assert str(caught.value) == text
