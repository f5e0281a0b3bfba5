"""Paths laid by load: what lies between the switches of a dragonfly is replaced by the shares its routing gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Tier
from syncline.sim.flow.detours import Choice, Detours, Floats, Longs
from syncline.sim.flow.engine import Paths
from syncline.timeline.columns import sum_by

FELT = 0.9
"""Of its rate: a link with detours that carries less at any moment slows nobody, and is left out of the sharing."""


def laid_by_load(
    ways: Detours, paths: Paths, amount: Floats, moment: Longs, choice: Choice
) -> tuple[Paths, NDArray[np.bool_]]:
    """Return paths with what lies between their first and last switch replaced by the shares of routing by load.

    With it, which of their crossings are felt: all but links with room between switches, and for what its ports alone
    hold back all links between switches.
    """
    links = ways.fabric.links
    access = np.flatnonzero(links.tier[paths.link] == Tier.ACCESS)
    row = paths.row_of_crossing()[access]
    twice = np.bincount(row, minlength=len(paths)) == 2
    rows = np.flatnonzero(twice)
    up, down = access[twice[row]].reshape(-1, 2).T
    src, dst = links.dst[paths.link[up]].astype(np.int64), links.src[paths.link[down]].astype(np.int64)
    known = ways.knows(src, dst)
    rows, up, down, src, dst = rows[known], up[known], down[known], src[known], dst[known]
    begin, length = np.zeros(len(paths), np.int64), np.zeros(len(paths), np.int64)  # of the new middles
    pool, level = Paths(np.zeros(1, np.int64), paths.link[:0], np.zeros(0)), np.zeros(len(paths))
    held = np.zeros(len(paths), dtype=bool)
    for when in np.unique(moment[rows]).tolist():
        mine = np.flatnonzero(moment[rows] == when)
        pair, at = np.unique(src[mine] * len(ways.fabric.devices) + dst[mine], return_inverse=True)
        most = _at_best(links.rate_Bps, paths.link[up[mine]], paths.link[down[mine]], amount[rows[mine]])
        top = np.zeros(len(pair))
        np.maximum.at(top, at.ravel(), most)
        a, b = np.divmod(pair, len(ways.fabric.devices))
        split = ways.split(a, b, sum_by(at.ravel(), amount[rows[mine]], len(pair)), top, choice)
        begin[rows[mine]] = len(pool.link) + split.paths.start[at.ravel()]
        length[rows[mine]] = np.diff(split.paths.start)[at.ravel()]
        level[rows[mine]], held[rows[mine]] = split.level[at.ravel()], (split.level < (1 - 1e-6) * top)[at.ravel()]
        pool = pool.then(split.paths)
    moved = np.flatnonzero(length[rows] > 0)
    rows, up, down = rows[moved], up[moved], down[moved]
    # Each row is what comes before its first switch, the new middle, and what comes after its last; others stay whole.
    first, size = np.zeros((len(paths), 3), np.int64), np.zeros((len(paths), 3), np.int64)
    first[:, 0], size[:, 0] = paths.start[:-1], np.diff(paths.start)
    first[rows, 1], size[rows, 1] = begin[rows] + len(paths.link), length[rows]
    first[rows, 2], size[rows, 2] = down, paths.start[rows + 1] - down
    size[rows, 0] = up + 1 - paths.start[rows]
    flat, count = first.ravel(), size.ravel()
    at = np.repeat(flat - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    link, share = np.concatenate((paths.link, pool.link)), np.concatenate((paths.shares(), pool.shares()))
    laid = Paths(np.concatenate(([0], np.cumsum(size.sum(axis=1)))), link[at], share[at])
    felt = _busy(laid, links.rate_Bps, amount * level, moment) & held[laid.row_of_crossing()]
    return laid, felt | (at < len(paths.link))


def _busy(paths: Paths, rate_Bps: Floats, sent_Bps: Floats, moment: Longs) -> NDArray[np.bool_]:
    """Return which crossings are of links that carry most of what they can at their moment."""
    row = paths.row_of_crossing()
    key, at = np.unique(moment[row] * len(rate_Bps) + paths.link, return_inverse=True)
    carried = sum_by(at.ravel(), sent_Bps[row] * paths.shares(), len(key))
    return np.asarray((carried >= FELT * rate_Bps[key % len(rate_Bps)])[at.ravel()])


def only(paths: Paths, kept: NDArray[np.bool_]) -> Paths:
    """Return paths over some of their links."""
    before = np.concatenate(([0], np.cumsum(kept)))
    return Paths(before[paths.start], paths.link[kept], paths.shares()[kept])


def _at_best(rate_Bps: Floats, up: Longs, down: Longs, amount: Floats) -> Floats:
    """Return how often the ports of each connection could send what all of them send at once."""
    need_s = (sum_by(up, amount, len(rate_Bps)) + sum_by(down, amount, len(rate_Bps))) / rate_Bps
    return np.asarray(1 / np.maximum(np.maximum(need_s[up], need_s[down]), 1e-300))
