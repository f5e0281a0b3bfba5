"""The decision on numbers made up: which codec at which rate, in which class, and no flapping."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.codec.names import PLAIN
from syncline.program.choice import CLASSES, ChoiceBasis, CodecPrice, decide
from syncline.program.overlap import Work

WORK = Work(0.2, (0.0, 0.05, 0.05, 0.05), (6_000_000,) * 4, 0.05)
PRICES = tuple(
    CodecPrice(name, 1.0e-9, 0.4e-9, 1.4e-9, 0.011) if name.startswith("powersgd") else CodecPrice(name, cost, cost)
    for name, cost in {
        "fp32": 5e-10, "bf16": 5e-10, "int8": 6e-10, "int4": 9e-10, "sign": 8e-10, "powersgd:rank=4": 0,
    }.items()
)  # fmt: skip


def at(rate_bps: float, **changes: object) -> ChoiceBasis:
    plain = ChoiceBasis(4, rate_bps / 8, 1e-4, 8.0, 5e-10, 2e-5, 3e-10, WORK, PRICES)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_on_a_fast_network_nothing_is_gained_by_codecs() -> None:
    for accuracy in CLASSES:
        assert decide(at(100e9), accuracy).codec == PLAIN


def test_at_1_gigabit_int8_is_taken() -> None:
    choice = decide(at(1e9), "safe")
    assert choice.codec == "int8"
    assert choice.predicted_s < 0.7 * choice.table[PLAIN]
    assert "plain DDP" in choice.why
    assert "1 Gb/s" in choice.why
    assert "\n" not in choice.why


def test_at_50_megabit_only_what_is_allowed_is_taken() -> None:
    safe, wild = decide(at(5e7), "safe"), decide(at(5e7), "aggressive")
    assert safe.codec == "int8"
    assert wild.codec not in CLASSES["safe"]
    assert wild.predicted_s < 0.5 * safe.predicted_s


@settings(max_examples=25, deadline=None)
@given(st.floats(1e6, 1e12), st.integers(2, 64), st.floats(0.5, 128))
def test_exact_is_plain_and_nothing_is_predicted_slower_than_it(rate_bps: float, num_ranks: int, cores: float) -> None:
    measured = at(rate_bps, num_ranks=num_ranks, num_cores=cores)
    assert decide(measured, "exact").codec == PLAIN
    safe = decide(measured, "safe")
    assert safe.predicted_s <= 1.03 * safe.table[PLAIN]
    assert safe.codec in CLASSES["safe"]


def test_ranks_with_the_same_numbers_decide_alike() -> None:
    for rate in (5e7, 3e8, 1e9, 25e9):
        assert decide(at(rate), "aggressive") == decide(at(rate), "aggressive")


def test_what_is_in_use_stays_unless_another_is_clearly_better() -> None:
    changes, current = 0, decide(at(1e9), "safe").codec
    for wobble in (1.05, 0.95, 1.1, 0.9, 1.0):
        after = decide(at(1e9 * wobble), "safe", current).codec
        changes, current = changes + (after != current), after
    assert changes == 0
    assert decide(at(100e6), "aggressive", PLAIN).codec != PLAIN


def test_plain_is_left_only_for_what_is_clearly_faster() -> None:
    rates = [2e9 * 1.15**step for step in range(30)]
    for choice in (decide(at(rate), "safe") for rate in rates):
        assert (choice.codec == PLAIN) == (choice.table[PLAIN] <= 1.05 * min(choice.table.values()))


def test_a_slow_codec_is_not_taken_for_its_few_bytes() -> None:
    dear = tuple(replace(price, encode_s=1e-6, decode_s=1e-6) for price in PRICES)
    assert decide(at(1e9, prices=dear), "aggressive").codec == PLAIN
