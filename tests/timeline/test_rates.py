from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncline.timeline import LinkSamples
from syncline.timeline.rates import binned_bytes, peak_rates_Bps, rate_steps

samples_lists = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12), st.integers(0, 100)), min_size=1, max_size=15
)


def make(raw: list[tuple[int, int, int, int]]) -> LinkSamples:
    link, start, length, size = (np.array(column) for column in zip(*raw, strict=True))
    return LinkSamples(link.astype(np.int32), start * 0.5, (start + length) * 0.5, size.astype(float))


def test_a_sample_is_shared_between_the_bins_it_touches() -> None:
    samples = LinkSamples(np.array([0]), np.array([0.5]), np.array([3.0]), np.array([10.0]))
    assert binned_bytes(samples, 1, 0.0, 1.0, 4).tolist() == [[2.0, 4.0, 4.0, 0.0]]


def test_a_moment_puts_all_its_bytes_in_one_bin() -> None:
    samples = LinkSamples(np.array([1]), np.array([1.0]), np.array([1.0]), np.array([7.0]))
    assert binned_bytes(samples, 2, 0.0, 1.0, 2).tolist() == [[0.0, 0.0], [0.0, 7.0]]


@given(samples_lists, st.sampled_from([0.3, 0.5, 1.0, 4.0, 100.0]))
def test_no_byte_is_lost_in_bins(raw: list[tuple[int, int, int, int]], bin_s: float) -> None:
    samples = make(raw)
    bins = int(np.ceil(16.0 / bin_s))
    size = binned_bytes(samples, 3, 0.0, bin_s, bins)
    expected = np.bincount(samples.link, weights=samples.size_bytes, minlength=3)
    np.testing.assert_allclose(size.sum(axis=1), expected, rtol=1e-12, atol=1e-9)
    assert (size >= 0).all()


@given(samples_lists)
def test_bins_agree_with_adding_sample_by_sample(raw: list[tuple[int, int, int, int]]) -> None:
    samples = make(raw)
    expected = np.zeros((3, 17))
    for link, start, length, size in raw:
        if length == 0:
            expected[link, int(start * 0.5)] += size
        for half in range(start, start + length):
            expected[link, half // 2] += size / length
    np.testing.assert_allclose(binned_bytes(samples, 3, 0.0, 1.0, 17), expected, atol=1e-9)


def test_instant_peak_adds_what_overlaps_and_not_what_touches() -> None:
    touching = LinkSamples(np.array([0, 0]), np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([5.0, 6.0]))
    assert peak_rates_Bps(touching, 2, 0.0).tolist() == [6.0, 0.0]
    overlapping = LinkSamples(
        np.array([0, 0, 0]), np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.5, 2.0]), np.array([5.0, 6.0, 1.0])
    )
    assert peak_rates_Bps(overlapping, 1, 0.0).tolist() == [11.0]


def test_stated_rates_count_for_the_instant_and_bytes_for_windows() -> None:
    burst = LinkSamples(np.array([0]), np.array([0.0]), np.array([1.0]), np.array([5.0]), np.array([50.0]))
    assert peak_rates_Bps(burst, 1, 0.0).tolist() == [50.0]
    assert peak_rates_Bps(burst, 1, 1.0).tolist() == [5.0]


def test_the_window_finds_a_burst_that_fixed_bins_would_halve() -> None:
    samples = LinkSamples(np.array([0]), np.array([0.5]), np.array([1.5]), np.array([8.0]))
    assert binned_bytes(samples, 1, 0.0, 1.0, 2).tolist() == [[4.0, 4.0]]
    assert peak_rates_Bps(samples, 1, 1.0).tolist() == [8.0]
    assert peak_rates_Bps(samples, 1, 2.0).tolist() == [4.0]


@given(samples_lists, st.sampled_from([0.5, 1.0, 2.5, 30.0]))
def test_the_window_peak_is_the_best_of_all_windows(raw: list[tuple[int, int, int, int]], window_s: float) -> None:
    samples = make(raw)
    rate = samples.own_rate_Bps()
    best = np.zeros(3)
    for begin in np.arange(-31, 20, 0.25):
        low, high = np.maximum(samples.start_s, begin), np.minimum(samples.end_s, begin + window_s)
        part = np.where(
            samples.end_s > samples.start_s, rate * np.maximum(high - low, 0), samples.size_bytes * (high >= low)
        )
        best = np.maximum(best, np.bincount(samples.link, weights=part, minlength=3))
    np.testing.assert_allclose(peak_rates_Bps(samples, 3, window_s), best / window_s, atol=1e-9)


def test_rate_steps_end_at_zero_without_dust() -> None:
    samples = LinkSamples(
        np.zeros(3, int), np.array([0.0, 0.1, 0.2]), np.array([0.3, 0.4, 0.7]), np.array([0.1, 0.2, 0.3])
    )
    time_s, rate = rate_steps(samples)
    assert time_s.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.7]
    assert rate[-1] == 0.0
