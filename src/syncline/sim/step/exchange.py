"""How gradients are exchanged: what an algorithm and a bucket size cost more than the best choice of both.

`cost.py` prices the exchange of replicas as one call of what the library chooses. This file asks the same price
(`sim/collective/columns.py`) with the algorithm named, a bucket at a time, and says how far a choice is from the best;
that is added. Over groups of n ranks, g of them in each domain:

    ring, tree     the library's own, `NCCL_ALGO` set; there is no tree that scatters
    hierarchical   scatters inside domains, sums S/g across them in g groups side by side, gathers inside

Where a compiler lays out collectives, `network.py` has its rings. Buckets go one after another; all but the last hide
behind the backward (gathered parameters: behind the forward), and slow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.sim.collective.columns import forced
from syncline.sim.step.case import Case, Floats, anywhere, pick
from syncline.sim.step.constants import Constants
from syncline.sim.step.network import inside, ring_of

MIB = 2**20
ALGORITHMS = ("ring", "tree", "hierarchical")
BUCKETS = tuple(size * MIB for size in (4, 8, 16, 25, 32, 50, 64, 100, 128, 256, 512, 1024))


class Buffer(NamedTuple):
    """What one group exchanges: gradient and parameter bytes, the ranks and how far apart they are."""

    grad_bytes: Floats
    param_bytes: Floats
    ranks: Floats
    stride: Floats
    laid_Bps: Floats  # what laying it on the fabric showed; 0: as formulas say


class Windows(NamedTuple):
    """The compute that an exchange can hide behind, seconds."""

    backward: Floats
    forward: Floats


def extra_s(c: Case, k: Constants, buffers: tuple[Buffer, ...], windows: Windows) -> Floats:
    """Return what the chosen algorithm and bucket cost more than the best; 0 where neither is fixed."""
    return _over_least(c, lambda algorithm, buckets: choice_s(c, k, algorithm, buckets, buffers, windows))


def longer_s(c: Case, k: Constants, buffer: Buffer, which: int) -> Floats:
    """Return by how much the chosen algorithm and bucket lengthen half of an exchange (`_bucket_s`) on the wire."""

    def wire_s(algorithm: str, buckets: Floats) -> Floats:
        ruled_out = np.inf if algorithm == "tree" and anywhere(c.sharded_state > 0) else 0.0
        return ruled_out + _half(c, k, algorithm, buckets, (buffer,), which)[0]

    return _over_least(c, wire_s)


def _over_least(c: Case, priced: Callable[[str, Floats], Floats]) -> Floats:
    """Return a price of the chosen algorithm and bucket less that of the best; 0 where neither is fixed."""
    if not (anywhere(c.algorithm > 0) or anywhere(c.bucket_bytes > 0)):
        return np.zeros(())
    own = np.atleast_1d(pick(c.bucket_bytes > 0, c.bucket_bytes, BUCKETS[0]))
    buckets = np.stack([*(np.full_like(own, size) for size in BUCKETS), own])
    least: Floats = np.full((), np.inf)
    chosen: Floats = np.full((), np.inf)
    for code, algorithm in enumerate(ALGORITHMS, 1):
        prices = priced(algorithm, buckets)
        least = np.minimum(least, prices.min(axis=0))
        fits = (c.algorithm == 0) | (c.algorithm == code)
        fits = fits & ((c.bucket_bytes == 0) | (c.bucket_bytes == buckets))
        chosen = np.minimum(chosen, np.where(fits, prices, np.inf).min(axis=0))
    return (chosen - least).squeeze()


def choice_s(
    c: Case, k: Constants, algorithm: str, bucket_bytes: Floats, buffers: tuple[Buffer, ...], windows: Windows
) -> Floats:
    """Return what a choice costs a step: what stays exposed, and how far the rest slows compute.

    `bucket_bytes` may have sizes down and rows across; so has the answer.
    """
    grads, last = _half(c, k, algorithm, bucket_bytes, buffers, 0)
    params, last_params = _half(c, k, algorithm, bucket_bytes, buffers, 1)
    sharded = c.sharded_state > 0
    apart = _slowed(c, k, grads, last, windows.backward) + _slowed(c, k, params, last_params, windows.forward)
    whole = _slowed(c, k, 2 * grads, 2 * last, windows.backward)
    # There is no tree that scatters: a sharded state rules it out.
    return np.broadcast_arrays(pick(sharded, np.inf if algorithm == "tree" else apart, whole), bucket_bytes)[0]


def _half(
    c: Case, k: Constants, algorithm: str, bucket_bytes: Floats, buffers: tuple[Buffer, ...], which: int
) -> tuple[Floats, Floats]:
    """Return the time of one half of the exchange, and of its last bucket."""
    total, last = np.zeros(()), np.zeros(())
    for buffer in buffers:
        size = buffer[which]
        each = _bucket_s(c, k, algorithm, buffer, which)(np.minimum(bucket_bytes, size))
        on = (buffer.ranks > 1) & (size > 0)
        total = total + pick(on, np.maximum(size / bucket_bytes, 1.0) * each, 0.0)
        last = np.maximum(last, pick(on, each, 0.0))
    return total, last


def _bucket_s(c: Case, k: Constants, algorithm: str, buffer: Buffer, which: int) -> Callable[[Floats], Floats]:
    """Return the price of half an exchange by size: a scatter (0) or gather (1), or half an all-reduce."""
    ranks, stride, laid = buffer.ranks, buffer.stride, buffer.laid_Bps
    sharded = c.sharded_state > 0
    if algorithm != "hierarchical":
        group = ring_of(replace(c, library=forced(c.library, algorithm)), k, ranks, stride, laid)
        part_s = (group.scatter_s, group.gather_s)[which]
        return lambda size: pick(sharded, part_s(size), group.sum_s(size) / 2)
    g = inside(c, ranks, stride)
    near = ring_of(c, k, g, stride, np.zeros(()))
    across = ring_of(c, k, np.maximum(ranks / g, 1.0), stride * g, laid / g)
    near_s, across_s = (near.scatter_s, near.gather_s)[which], (across.scatter_s, across.gather_s)[which]
    return lambda size: pick(
        sharded,
        near_s(size) + across_s(size / g),
        (near.scatter_s(size) + across.sum_s(size / g) + near.gather_s(size)) / 2,
    )


def _slowed(c: Case, k: Constants, total: Floats, last: Floats, window: Floats) -> Floats:
    exposed = pick(c.dp_overlap > 0, np.maximum(last, total - window), total)
    return exposed + k.held.c_sm * (total - exposed)
