"""Bursts and peaks from rows of counters; the two loops that make rows."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.watch.python_sampler import PythonLoop

from syncline.errors import WatchError
from syncline.watch.burst import BurstFinder, window_s
from syncline.watch.sampler import BurstSampler, InterfacePlace, SampleRows, StartLoop, native_loop

CAPACITY = 1e9
LIMITS = {("eth0", "rx"): CAPACITY, ("eth0", "tx"): CAPACITY}


def rows(time_s: np.ndarray, sent: np.ndarray) -> SampleRows:
    counters = np.stack([np.zeros_like(sent), sent], axis=1).astype(np.uint64)
    return SampleRows(("eth0",), time_s, counters)


def sent_at(share: np.ndarray, step_s: float = 1e-3) -> np.ndarray:
    return np.cumsum(share * CAPACITY * step_s)


def test_windows_hold_twenty_packets_at_least_a_millisecond_and_never_more_than_a_tenth() -> None:
    assert window_s(np.array([50e9, 12.5e6, 1e4, 0.0]), 9018).tolist() == pytest.approx([1e-3, 16e-3, 0.1, 0.1])


def test_a_burst_of_five_milliseconds_is_found_with_its_size() -> None:
    share = np.full(1000, 0.1)
    share[400:405] = 1.0
    peaks = BurstFinder().update(rows(np.arange(1000) * 1e-3, sent_at(share)), LIMITS)["eth0", "tx"]
    assert peaks.peak_Bps == pytest.approx(CAPACITY, rel=1e-6)
    (burst,) = peaks.bursts
    assert burst.start_s == pytest.approx(0.399, abs=2e-3)
    assert burst.duration_s == pytest.approx(5e-3, abs=2e-3)
    assert burst.size_bytes == pytest.approx(5e6, rel=0.25)
    assert peaks.saturated_share == pytest.approx(0.005, abs=2e-3)


def test_a_burst_across_two_looks_is_one() -> None:
    share = np.full(1000, 0.1)
    share[490:520] = 1.0
    time_s, sent = np.arange(1000) * 1e-3, sent_at(share)
    finder = BurstFinder()
    first = finder.update(rows(time_s[:500], sent[:500]), LIMITS)["eth0", "tx"]
    second = finder.update(rows(time_s[500:], sent[500:]), LIMITS)["eth0", "tx"]
    assert first.bursts == ()
    assert [round(b.duration_s, 3) for b in second.bursts] == [pytest.approx(0.03, abs=2e-3)]


def test_a_rate_that_trembles_around_the_threshold_is_one_burst() -> None:
    share = np.where(np.arange(400) % 2, 1.0, 0.9)
    share[:100] = share[300:] = 0.0
    peaks = BurstFinder().update(rows(np.arange(400) * 1e-3, sent_at(share)), LIMITS)["eth0", "tx"]
    assert len(peaks.bursts) == 1


def test_late_rows_do_not_make_rates_that_never_were() -> None:
    """Samples come late under load; each rate is over its real interval."""
    rng = np.random.default_rng(1)
    time_s = np.cumsum(np.where(rng.random(2000) < 0.02, 12e-3, 1e-3))
    sent = 0.4 * CAPACITY * time_s
    peaks = BurstFinder().update(rows(time_s, sent), LIMITS)["eth0", "tx"]
    assert peaks.peak_Bps == pytest.approx(0.4 * CAPACITY, rel=1e-3)
    assert peaks.bursts == ()


def test_a_reset_counter_makes_no_peak() -> None:
    sent = sent_at(np.full(200, 0.1))
    sent[100:] -= sent[100]
    peaks = BurstFinder().update(rows(np.arange(200) * 1e-3, sent), LIMITS)["eth0", "tx"]
    assert peaks.peak_Bps < 0.2 * CAPACITY


@given(st.lists(st.floats(0, 1), min_size=30, max_size=300), st.integers(1, 29))
def test_cutting_the_rows_changes_nothing(share: list[float], cut: int) -> None:
    time_s, sent = np.arange(len(share)) * 1e-3, np.floor(sent_at(np.array(share)))
    whole = BurstFinder().update(rows(time_s, sent), LIMITS)["eth0", "tx"]
    finder = BurstFinder()
    parts = [finder.update(rows(time_s[a:b], sent[a:b]), LIMITS) for a, b in ((0, cut), (cut, len(share)))]
    found = [part["eth0", "tx"] for part in parts if part]
    assert max(p.peak_Bps for p in found) == pytest.approx(whole.peak_Bps)
    assert [b for p in found for b in p.bursts] == list(whole.bursts)


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="netlink is Linux's")
@pytest.mark.parametrize("start", [native_loop, PythonLoop])
def test_both_loops_see_the_bytes_that_cross_loopback(start: StartLoop) -> None:
    sampler = BurstSampler({"lo": InterfacePlace(None, 1)}, start=start)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            looks = [look(sampler)]
            for _ in range(50):
                out.sendto(bytes(10_000), ("127.0.0.1", 9))
            looks += [look(sampler) for _ in range(6)]
    finally:
        sampler.close()
    assert {got.devices for got in looks} == {("lo",)}
    assert (np.diff(np.concatenate([got.time_s for got in looks])) > 0).all()
    assert looks[-1].counters[-1, 1] - looks[0].counters[0, 1] >= 500_000
    assert looks[-1].num_failed == 0


def look(sampler: BurstSampler) -> SampleRows:
    """Return what was sampled since the last look, once there is something."""
    until = time.monotonic() + 120
    while not len((got := sampler.take()).time_s):
        assert time.monotonic() < until, "nothing was sampled in two minutes"
        time.sleep(0.001)
    return got


def test_nothing_to_sample_is_an_error() -> None:
    with pytest.raises(WatchError, match="no interface to sample"):
        BurstSampler({})
