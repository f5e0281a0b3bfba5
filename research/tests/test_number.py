"""Numbers as tables write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from research.training.number import billions_in, counts_tokens, number_in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4,096", 4096), ("1.2k", 1200), ("52 %", 52), ("3.2-3.4", 3.3), ("3 to 5", 4), ("4M tokens", 4e6),
        ("~175", 175),
        ("memory: 96", 96), ("8 (2 hosts)", 8), ("51.2 ± 0.3", 51.2), ("1.5e3", 1500), ("1_000", 1000), ("12 ms", 12),
        ("8x8", None), ("varies", None), ("nan", None), ("inf", None), ("-3", None), ("1e400", None), ("", None),
        ("n/a", None), ("0x10", None),
    ],
)  # fmt: skip
def test_a_cell_is_one_number_or_none(text: str, value: float | None) -> None:
    found = number_in(text)
    assert found is None if value is None else found == pytest.approx(value)


def test_sequences_count_in_1024_and_parameters_in_billions() -> None:
    assert number_in("128K", binary=True) == 131_072
    assert billions_in("760M") == pytest.approx(0.76)
    assert billions_in("175B") == billions_in("175") == 175
    assert billions_in("1.6T") == 1600
    assert counts_tokens("4M tokens") and not counts_tokens("2048")


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    found = number_in(text)
    assert found is None or 0 <= found <= 1e18


@given(st.integers(min_value=0, max_value=10**15))
def test_whole_numbers_survive_thousands_separators(number: int) -> None:
    assert number_in(f"{number:,}") == number_in(str(number)) == number
