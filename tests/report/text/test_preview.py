"""A preview's words about communication: what no kernel hides, and what of it a faster network could give back."""

from __future__ import annotations

import pytest

from syncline.previewing.what_if import Alternative
from syncline.report.text.preview import _exposed


def alternative(change: str, step_time_s: float) -> Alternative:
    return Alternative(change, step_time_s, 0.0)


@pytest.mark.parametrize(
    ("without_s", "said"),
    [(0.9, None), (0.96, "would save only 40 ms"), (0.9996, "would save nothing"), (1.01, "would save nothing")],
)
def test_where_something_else_is_later_the_network_is_not_blamed(without_s: float, said: str | None) -> None:
    changes = [alternative("codec=fp8", 1.0), alternative("network=free", without_s)]
    first, *more = _exposed(0.1, 1.0, changes)
    assert first == "  exposed     100 ms (10.0%) of communication hides behind no kernel"
    assert [said is not None and said in line for line in more] == ([] if said is None else [True])


def test_without_communication_nothing_is_said_of_networks() -> None:
    assert len(_exposed(0.0, 1.0, [alternative("network=free", 1.0)])) == 1
