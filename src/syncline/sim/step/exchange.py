"""How gradients are exchanged: what an algorithm and a bucket size cost more than the best choice of both.

`cost.py` prices the exchange of replicas as published runs show it, which is the price of the best choice. This file
says by closed forms how far another choice is from the best, and that is added. Of one half (reduce-scatter or gather)
of a bucket of S bytes over n ranks, g of them in each of D = n/g domains:

    ring           S (n-1)/n / min(up, out)                    + (n-D) near + D far
    tree           the same at 0.92 of the rate (D = 2: S/2 out) + (g-1) near + log2(D) far       (all-reduce only)
    hierarchical   S (g-1)/g / up  +  S (D-1)/D / out          + (g-1) near + (D-1) far

and one call each; `out` is what one ring gets of the network (`network.out_Bps`). Rings and hierarchies cross lines
between sites twice, trees once. Buckets go one after another; all but the last hide behind the backward (gathered
parameters: behind the forward), and slow it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syncline.sim.double_tree import sum_share
from syncline.sim.step.case import Case, Floats, anywhere, pick
from syncline.sim.step.constants import Constants
from syncline.sim.step.network import inside, laid_or, long_s, out_Bps, up_Bps

MIB = 2**20
ALGORITHMS = ("ring", "tree", "hierarchical")
BUCKETS = tuple(size * MIB for size in (4, 8, 16, 25, 32, 50, 64, 100, 128, 256, 512, 1024))
#: Rate of a double binary tree over that of a ring, large messages (NCCL's own model: 0.92 of the ring's).
TREE_RATE = 0.92


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
    if not (anywhere(c.algorithm > 0) or anywhere(c.bucket_bytes > 0)):
        return np.zeros(())
    least: Floats = np.full((), np.inf)
    chosen: Floats = np.full((), np.inf)
    own = pick(c.bucket_bytes > 0, c.bucket_bytes, BUCKETS[0])
    for code, algorithm in enumerate(ALGORITHMS, 1):
        for bucket in (*(np.asarray(float(b)) for b in BUCKETS), own):
            price = choice_s(c, k, algorithm, bucket, buffers, windows)
            least = np.minimum(least, price)
            fits = (c.algorithm == 0) | (c.algorithm == code)
            fits = fits & ((c.bucket_bytes == 0) | (c.bucket_bytes == bucket))
            chosen = np.minimum(chosen, pick(fits, price, np.inf))
    return chosen - least


def choice_s(
    c: Case, k: Constants, algorithm: str, bucket_bytes: Floats, buffers: tuple[Buffer, ...], windows: Windows
) -> Floats:
    """Return what a choice costs a step: what stays exposed, and how far the rest slows compute."""
    grads, last = _half(c, k, algorithm, bucket_bytes, buffers, 0)
    params, last_params = _half(c, k, algorithm, bucket_bytes, buffers, 1)
    sharded = c.sharded_state > 0
    apart = _slowed(c, k, grads, last, windows.backward) + _slowed(c, k, params, last_params, windows.forward)
    whole = _slowed(c, k, 2 * grads, 2 * last, windows.backward)
    # There is no tree that scatters: a sharded state rules it out.
    return pick(sharded, np.inf if algorithm == "tree" else apart, whole)


def _half(
    c: Case, k: Constants, algorithm: str, bucket_bytes: Floats, buffers: tuple[Buffer, ...], which: int
) -> tuple[Floats, Floats]:
    """Return the time of one half of the exchange, and of its last bucket."""
    total, last = np.zeros(()), np.zeros(())
    for buffer in buffers:
        size = buffer[which]
        fixed, per_byte = _terms(c, k, algorithm, buffer)
        on = (buffer.ranks > 1) & (size > 0)
        total = total + pick(on, np.ceil(size / bucket_bytes) * fixed + size * per_byte, 0.0)
        last = np.maximum(last, pick(on, fixed + np.minimum(bucket_bytes, size) * per_byte, 0.0))
    return total, last


def _terms(c: Case, k: Constants, algorithm: str, buffer: Buffer) -> tuple[Floats, Floats]:
    """Return the fixed time of a bucket and the time of each of its bytes, one half of an all-reduce."""
    ranks, stride = buffer.ranks, buffer.stride
    g = inside(c, ranks, stride)
    domains = np.maximum(ranks / g, 1.0)
    up, out = up_Bps(c, k, g), laid_or(buffer.laid_Bps, k.fitted.e_net * out_Bps(c, ranks, stride))
    near, call = k.held.ring_hop_s, k.held.tp_call_s
    far, long = c.hop_s, long_s(c, ranks, stride)
    share = (ranks - 1) / ranks
    if algorithm == "hierarchical":
        fixed = (g - 1) * near + (domains - 1) * far + 2 * long
        per_byte = (g - 1) / g / up + (domains - 1) / domains / out
    elif algorithm == "tree":
        fixed = (g - 1) * near + np.log2(domains) * far + long
        half = sum_share(ranks, domains) / 2
        per_byte = np.maximum(share / up, half / out) / TREE_RATE
    else:
        fixed = (ranks - domains) * near + domains * far + 2 * long
        per_byte = share / np.minimum(up, out)
    within = g >= ranks  # one domain: there is only the ring
    fixed = pick(within, (ranks - 1) * near, fixed)
    return fixed + call, pick(within, share / up, per_byte)


def _slowed(c: Case, k: Constants, total: Floats, last: Floats, window: Floats) -> Floats:
    exposed = pick(c.dp_overlap > 0, np.maximum(last, total - window), total)
    return exposed + k.held.c_sm * (total - exposed)
