"""An account in words: where removing a cause saves less than its part, both are said."""

from __future__ import annotations

import pytest

from syncline.report.text.account import account_lines
from syncline.timeline.account import StepCause, account_of


@pytest.mark.parametrize(
    ("without_s", "said"),
    [
        (0.9, None),
        (0.96, "removing it saves 40 ms: other work hid behind it"),
        (1.01, "removing it saves 0 s: other work hid behind it"),
        (0.8, "removing it saves 200 ms: it also delays what follows"),
    ],
)
def test_where_something_else_is_later_the_network_is_not_blamed(without_s: float, said: str | None) -> None:
    parts = {(StepCause.KERNELS, "products"): 0.9, (StepCause.NETWORK, "all-reduce"): 0.1}
    account = account_of("previewed", 1.0, parts, without={StepCause.NETWORK: without_s})
    lines = [line for line in account_lines(account) if "collective" in line]
    assert len(lines) == 1 and "100 ms" in lines[0] and "10.0%" in lines[0]
    assert "removing" not in lines[0] if said is None else said in lines[0]


def test_without_communication_nothing_is_said_of_networks() -> None:
    account = account_of("previewed", 1.0, {(StepCause.KERNELS, "products"): 1.0}, without={StepCause.NETWORK: 1.0})
    assert not [line for line in account_lines(account) if "collective" in line]
