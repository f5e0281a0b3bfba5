"""Rates out of link samples: bins, and the highest mean over any window of a given length.

A sample spreads its bytes evenly over its interval. A sample of no length (or one too short to have a rate) delivers
them in that moment.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import TimelineError
from syncline.timeline.columns import Floats, Ints, sum_by
from syncline.timeline.intervals import grouped_order
from syncline.timeline.links import LinkSamples


def binned_bytes(samples: LinkSamples, num_links: int, start_s: float, bin_s: float, bins: int) -> Floats:
    """Return bytes by link and bin (links x bins); no byte is lost, the last bin takes what rounding spills."""
    first = np.clip(((samples.start_s - start_s) // bin_s).astype(np.int64), 0, bins - 1)
    last = np.clip(((samples.end_s - start_s) // bin_s).astype(np.int64), first, bins - 1)
    rate = samples.own_rate_Bps()
    row = samples.link.astype(np.int64) * (bins + 1)
    size = num_links * (bins + 1)
    whole = (first == last) | (rate == 0)
    split = ~whole
    head = np.where(split, rate * (start_s + (first + 1) * bin_s - samples.start_s), samples.size_bytes)
    middle = np.where(split, rate * bin_s, 0.0)
    tail = np.where(split, samples.size_bytes - head - middle * (last - first - 1), 0.0)
    edges = sum_by(row + first, np.maximum(head, 0.0), size)
    edges += sum_by(row + last, np.maximum(tail, 0.0), size)
    # Bins wholly inside a sample: a difference array, so that a long sample costs as much as a short one.
    opens, closes = (row + first + 1)[split], (row + last)[split]
    turn = sum_by(opens, middle[split], size) - sum_by(closes, middle[split], size)
    depth = np.bincount(opens, minlength=size) - np.bincount(closes, minlength=size)
    # Running sums leave rounding dust behind; where nothing runs, the answer is zero and not the dust.
    inner = np.where(np.cumsum(depth) > 0, np.maximum(np.cumsum(turn), 0.0), 0.0)
    return (edges + inner).reshape(num_links, bins + 1)[:, :bins]


def peak_rates_Bps(samples: LinkSamples, num_links: int, window_s: float) -> Floats:
    """Return for each link the highest rate: at an instant (window 0), or on average over any window of that length."""
    if not window_s >= 0 or not np.isfinite(window_s):
        raise TimelineError(f"window_s is {window_s}; it must be 0 or above.")
    peak = np.zeros(num_links)
    if len(samples) == 0:
        return peak
    order = grouped_order(samples.link, samples.start_s)
    link = samples.link[order]
    first = np.flatnonzero(np.append(True, link[1:] != link[:-1]))
    if window_s == 0 and not _overlapping(samples, order, first):
        peak[link[first]] = np.maximum.reduceat(samples.rate_Bps[order], first)
        return peak
    for begin, end in zip(first, np.append(first[1:], len(order)), strict=True):
        mine = samples.take(order[begin:end])
        peak[link[begin]] = _peak_now(mine) if window_s == 0 else _peak_window(mine, window_s)
    return peak


def rate_steps(samples: LinkSamples) -> tuple[Floats, Floats]:
    """Return the times at which the summed rate of one link changes, and the rate from each on."""
    active = samples.take(samples.end_s > samples.start_s)
    time_s = np.concatenate([active.start_s, active.end_s])
    change = np.concatenate([active.rate_Bps, -active.rate_Bps])
    depth = np.repeat(np.array([1, -1]), len(active))
    order = np.argsort(time_s, kind="stable")
    time_s, rate = time_s[order], np.cumsum(change[order])
    rate = np.where(np.cumsum(depth[order]) > 0, np.maximum(rate, 0.0), 0.0)
    settled = np.append(time_s[1:] > time_s[:-1], True)[: len(time_s)]
    return time_s[settled], rate[settled]


def _overlapping(samples: LinkSamples, order: Ints, first: Ints) -> bool:
    start, end = samples.start_s[order], samples.end_s[order]
    clash = start[1:] < end[:-1]
    clash[first[1:] - 1] = False
    return bool(clash.any())


def _peak_now(samples: LinkSamples) -> float:
    return float(rate_steps(samples)[1].max(initial=0.0))


def _peak_window(samples: LinkSamples, window_s: float) -> float:
    """Return the highest mean over a sliding window."""
    # Bytes carried up to a time are piecewise linear in it, so the highest window has an edge at a corner.
    rate = samples.own_rate_Bps()
    moment = (rate == 0) & (samples.size_bytes > 0)
    time_s = np.concatenate([samples.start_s, samples.end_s])
    slope = np.concatenate([rate, -rate])
    jump = np.concatenate([np.where(moment, samples.size_bytes, 0.0), np.zeros(len(samples))])
    order = np.argsort(time_s, kind="stable")
    time_s, slope, jump = time_s[order], np.cumsum(slope[order]), jump[order]
    carried = np.cumsum(jump)
    carried[1:] += np.cumsum(slope[:-1] * np.diff(time_s))

    def upto(at_s: Floats, side: str) -> Floats:
        i = np.searchsorted(time_s, at_s, side="right" if side == "right" else "left") - 1
        return np.where(i >= 0, carried[i] + slope[i] * (at_s - time_s[i]), 0.0)

    corners = np.concatenate([time_s, time_s - window_s])
    gained = upto(corners + window_s, "right") - upto(corners, "left")
    return float(gained.max(initial=0.0)) / window_s
