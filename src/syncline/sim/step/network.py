"""Communication of a rank's groups: which part of a group shares a scale-up domain, at what rate it exchanges."""

from __future__ import annotations

import numpy as np

from syncline.sim.step.case import Case, Floats
from syncline.sim.step.constants import Constants


def inside(c: Case, ranks: Floats, stride: Floats) -> Floats:
    """Return how many ranks of a group (every `stride`-th rank) share one scale-up domain."""
    return np.clip(np.floor(c.domain / stride), 1.0, ranks)


def rate_Bps(c: Case, k: Constants, ranks: Floats, stride: Floats) -> Floats:
    """Return at what rate a rank of the group gathers or scatters.

    Inside a domain: its scale-up links. Beyond, the ranks of the group in one domain carry its ring together, so `g`
    of them have `g` network shares, but never more than the scale-up links behind them.
    """
    g = inside(c, ranks, stride)
    up, out = k.fitted.e_nvl * c.nvlink_Bps, k.fitted.e_net * c.nic_Bps
    return np.where(g >= ranks, up, np.minimum(up, g * out))


def call_s(c: Case, k: Constants, ranks: Floats, stride: Floats) -> Floats:
    """Return the fixed time of one exchange of a group; 0 for a group of one."""
    beyond = inside(c, ranks, stride) < ranks
    fixed = k.held.tp_call_s + np.where(beyond, c.hop_s * np.log2(np.maximum(ranks, 2.0)), 0.0)
    return np.where(ranks > 1, fixed, 0.0)


def gather_s(c: Case, k: Constants, size_bytes: Floats, ranks: Floats, stride: Floats) -> Floats:
    """Return the time to gather (or reduce-scatter) a buffer of `size_bytes` in a group."""
    return (ranks - 1) / ranks * size_bytes / rate_Bps(c, k, ranks, stride) + call_s(c, k, ranks, stride)


def tp_exchange_s(c: Case, k: Constants) -> Floats:
    """Return the time of one all-reduce (or gather and scatter) of a micro-batch's activations over the TP group."""
    size = 2 * c.tokens * c.hidden
    one = np.ones(())
    exchange = 2 * (c.tp - 1) / c.tp * size / rate_Bps(c, k, c.tp, one) + call_s(c, k, c.tp, one)
    return np.where(c.tp > 1, exchange, 0.0)


def ring_attention_s(c: Case, k: Constants) -> Floats:
    """Return the time to pass keys and values once around the CP group, one layer, forward."""
    size = (c.qk_size + c.v_size) * c.kv_heads / c.tp * c.tokens * (c.cp - 1) * 2
    return np.where(c.cp > 1, size / neighbour_Bps(c, k, c.cp, c.tp), 0.0)


def head_exchange_s(c: Case, k: Constants) -> Floats:
    """Return the time of Ulysses' all-to-alls of one layer, forward: heads are exchanged for sequence, and back."""
    width = (c.heads + c.kv_heads) * (c.qk_size + c.v_size) / c.tp
    size = (c.cp - 1) / c.cp * 2 * c.tokens * width
    exchange = size / neighbour_Bps(c, k, c.cp, c.tp) + 2 * call_s(c, k, c.cp, c.tp)
    return np.where(c.cp > 1, exchange, 0.0)


def neighbour_Bps(c: Case, k: Constants, ranks: Floats, stride: Floats) -> Floats:
    """Return the rate between neighbours of a group: scale-up only where the whole group shares a domain."""
    within = inside(c, ranks, stride) >= ranks
    return np.where(within, k.fitted.e_nvl * c.nvlink_Bps, k.fitted.e_net * c.nic_Bps)
