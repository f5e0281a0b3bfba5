"""Counters that wrap, reset, vanish and come back give totals that never fall and rates that were possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncline.watch.counter import FORGET_AFTER, CounterBank, growth
from syncline.watch.metric import METRICS, Key

KEY = Key("net.tx_bytes", "eth0")


def test_a_wrap_of_64_bits_is_followed() -> None:
    assert growth(2**64 - 100, 50, 64) == (150, False)


def test_a_wrap_of_32_bits_under_a_64_bit_interface_is_followed() -> None:
    assert growth(2**32 - 1000, 24, 64) == (1024, False)


def test_a_counter_that_starts_again_was_reset_and_counts_what_it_shows() -> None:
    assert growth(10_000_000, 300, 64) == (300, True)
    assert growth(2**60, 5, 64) == (5, True)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50))
def test_totals_never_fall_whatever_is_read(values: list[int]) -> None:
    bank = CounterBank()
    last = -1
    for second, value in enumerate(values):
        grown = bank.update({KEY: value}, float(second))
        ((_, total),) = bank.totals()
        assert total >= last
        assert all(g.delta >= 0 for g in grown.values())
        last = total


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=40), st.integers(0, 2**32 - 1), st.sampled_from([32, 64]))
def test_steps_across_wraps_add_up_exactly(steps: list[int], start: int, bits: int) -> None:
    # Steps below a quarter of 32 bits: what a counter read once a second can do without anyone losing a turn.
    steps = [step // 2 for step in steps]
    start = start if bits == 32 else 2**64 - 1 - start
    bank, value = CounterBank(), start
    bank.update({KEY: value}, 0.0)
    for second, step in enumerate(steps, start=1):
        value = (value + step) % 2**bits
        bank.update({KEY: value}, float(second))
    ((_, total),) = bank.totals()
    assert total == start + sum(steps)
    assert bank.num_resets == 0


def test_a_counter_that_vanishes_keeps_its_total_and_its_interval() -> None:
    bank = CounterBank()
    bank.update({KEY: 100}, 0.0)
    assert bank.update({}, 1.0) == {}
    grown = bank.update({KEY: 400}, 3.0)[KEY]
    assert (grown.delta, grown.interval_s, grown.rate) == (300, 3.0, 100.0)


def test_what_is_gone_for_long_is_forgotten() -> None:
    bank = CounterBank()
    bank.update({Key("net.tx_bytes", f"veth{i}"): 1 for i in range(100)}, 0.0)
    bank.update({KEY: 1}, FORGET_AFTER + 1)
    assert len(bank) == 1


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    bank = CounterBank()
    bank.update({KEY: 1}, 5.0)
    assert bank.update({KEY: 10}, 5.0) == {}
    assert bank.update({KEY: 10}, 6.0)[KEY].rate == 9
    assert dict(bank.totals())[KEY] == 10


def test_every_metric_has_a_name_of_its_own_in_base_units() -> None:
    exported = [metric.exported for metric in METRICS.values()]
    assert len(exported) == len(set(exported))
    assert not [name for name in exported if name.endswith(("_ms", "_us", "_gbs", "_total", "_percent"))]
