from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe import units
from syncline.errors import UnitError


@pytest.mark.parametrize(
    ("text", "rate_Bps"),
    [
        ("400Gbps", 50e9),
        ("400 Gb/s", 50e9),
        ("400Gbit/s", 50e9),
        ("50GB/s", 50e9),
        ("50GBps", 50e9),
        ("1GiB/s", 2.0**30),
        ("12.8Tbps", 1.6e12),
        ("8bps", 1.0),
        (".5e1Gb/s", 625e6),
        ("1_000_000", 1e6),
        (25e9, 25e9),
        (0, 0.0),
        (np.float32(2.0), 2.0),
    ],
)
def test_rate_reads_bits_and_bytes_as_bytes_per_second(text: str | float, rate_Bps: float) -> None:
    assert units.rate(text) == rate_Bps


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("16MiB", 16 * 2**20),
        ("16Mi", 16 * 2**20),
        ("1GB", 10**9),
        ("1.1kB", 1100),
        ("2.3TB", 2_300_000_000_000),
        ("4096", 4096),
        (" 0.5 KiB ", 512),
        ("9007199254740993", 2**53 + 1),
        (2**60 + 1, 2**60 + 1),
        (np.int64(7), 7),
        (8.0, 8),
    ],
)
def test_size_is_exact(text: str | float, size_bytes: int) -> None:
    got = units.size(text)
    assert got == size_bytes
    assert type(got) is int


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3\u03bcs", 3e-6),
        ("600ns", 6e-7),
        ("1.5ms", 1.5e-3),
        ("2min", 120.0),
        (0.25, 0.25),
    ],
)
def test_time_reads_to_the_nearest_float(text: str | float, time_s: float) -> None:
    assert units.time(text) == time_s


def test_length_reads_metres() -> None:
    assert [units.length(text) for text in ("30m", "2km", "50cm", 7)] == [30.0, 2000.0, 0.5, 7.0]


@pytest.mark.parametrize(
    ("read", "text", "message", "hint"),
    [
        (units.rate, "400Gbq", 'cannot read rate "400Gbq".', 'Write it as "400Gbps" (units: Mbps, Gbps,'),
        (units.rate, "400 GHz", 'cannot read rate "400 GHz".', 'Write it as "400Gbps"'),
        (units.rate, "fast", 'cannot read rate "fast".', 'Write it as "400Gbps"'),
        (units.rate, "-1Gbps", 'cannot read rate "-1Gbps".', 'Write it as "400Gbps"'),
        (units.rate, -1, "rate -1 must be finite and not negative.", 'Write it as "400Gbps"'),
        (units.rate, math.nan, "rate nan must be finite and not negative.", 'Write it as "400Gbps"'),
        (units.rate, math.inf, "rate inf must be finite and not negative.", 'Write it as "400Gbps"'),
        (units.rate, "1e999999999Gbps", "rate '1e999999999Gbps' must be finite and not", 'Write it as "400Gbps"'),
        (units.rate, True, "rate True is not a quantity.", 'Write it as "400Gbps"'),
        (units.rate, None, "rate None is not a quantity.", 'Write it as "400Gbps"'),
        (units.rate, "", 'cannot read rate "".', 'Write it as "400Gbps"'),
        (units.rate, "٣Gbps", 'cannot read rate "٣Gbps".', 'Write it as "400Gbps"'),
        (units.size, "1.5B", "size '1.5B' is not a whole number of bytes.", 'Write it as "16MiB"'),
        (units.size, "16Gbps", 'cannot read size "16Gbps".', 'Write it as "16MiB"'),
        (units.time, "3 fortnights", 'cannot read time "3 fortnights".', 'Write it as "3us" (units: ns, us,'),
        (units.length, "3ft", 'cannot read length "3ft".', 'Write it as "30m" (units: cm, m, km).'),
    ],
)
def test_what_cannot_be_read_is_named(read: Callable[[object], float], text: object, message: str, hint: str) -> None:
    with pytest.raises(UnitError) as caught:
        read(text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.show_rate(50e9), "400 Gb/s"),
        (units.show_rate(124.9999e9), "1 Tb/s"),
        (units.show_rate(0), "0 b/s"),
        (units.show_bandwidth(12.8e12), "12.8 TB/s"),
        (units.show_size(16 * 2**20), "16 MiB"),
        (units.show_size(1023), "1023 B"),
        (units.show_given_size(1_000_000), "1 MB"),
        (units.show_given_size(2**20), "1 MiB"),
        (units.show_size(2**70), "1024 EiB"),
        (units.show_time(3e-6), "3 us"),
        (units.show_time(0), "0 s"),
        (units.show_time(59.9999), "1 min"),
        (units.show_time(1e12), "11,574,074 d"),
        (units.show_money(4_351_000), "$4.35 M"),
        (units.show_money(999_900), "$1 M"),
        (units.show_money(2.5e12), "$2,500 B"),
        (units.show_money(12.5), "$12.50"),
        (units.show_money(-1200), "-$1.2 k"),
        (units.show_money(-5), "-$5.00"),
        (units.show_power(10_200), "10.2 kW"),
    ],
)
def test_quantities_are_shown_as_people_write_them(shown: str, text: str) -> None:
    assert shown == text


@given(st.floats(1e-9, 1e18))
def test_what_is_shown_can_be_read_back(value: float) -> None:
    assert units.rate(units.show_rate(value)) == pytest.approx(value, rel=1e-3)
    assert units.rate(units.show_bandwidth(value)) == pytest.approx(value, rel=1e-3)
    assert float(units.size(round(value))) == round(value)


@given(st.floats(1e-12, 1e8))
def test_times_shown_can_be_read_back(value: float) -> None:
    assert units.time(units.show_time(value)) == pytest.approx(value, rel=1e-3)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_unit_error(text: str) -> None:
    for read in (units.rate, units.size, units.time, units.length):
        try:
            assert read(text) >= 0
        except UnitError as error:
            assert error.hint
