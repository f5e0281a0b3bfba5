"""Time of single kernels: matrix products, attention, and what only moves memory."""

from __future__ import annotations

import numpy as np

from syncline.sim.step.case import Case, Floats
from syncline.sim.step.constants import Constants

TILE = 128


def gemm_s(
    c: Case, k: Constants, m: Floats, n: Floats, depth: Floats, out_bytes: Floats | float, rate: Floats
) -> Floats:
    """Return the time of an m x n product over `depth`; 0 where it is empty.

    Arithmetic at the sustained rate, the part of the output pass that is not hidden (which is how a small depth costs
    more per operation), a share of the last wave of tiles, and the gap to the next kernel.
    """
    work = 2 * m * n * depth / (k.fitted.e_gemm * rate)
    waves = np.maximum(np.ceil(m / TILE) * np.ceil(n / TILE) / 2 / c.num_sms, 0.25)
    output = k.held.out_share * out_bytes * m * n / c.hbm_Bps
    return np.where(m * n * depth > 0, work * (1 + k.held.tail / waves) + output + k.held.gap_s, 0.0)


def head_speed(size: Floats) -> Floats:
    """Return how well a flash kernel uses the matrix units at a head size, 128 = 1.

    Kernels exist for multiples of 32 (64 above 128); other sizes are padded. Small heads leave less arithmetic per
    element of softmax. Head size 64: x 0.75 as published for FlashAttention; the line between is interpolated.
    """
    padded = np.where(size <= 128, np.ceil(size / 32) * 32, np.ceil(size / 64) * 64)
    return np.interp(padded, [32.0, 64.0, 96.0, 128.0, 256.0], [0.45, 0.75, 0.9, 1.0, 1.0]) * size / padded


def flash_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of fused attention in one layer."""
    flops = 2 * c.tokens * c.span * c.heads / c.tp * (c.qk_size + c.v_size)
    own = c.sequence / c.cp
    kernel = c.kernel * np.where(c.triton > 0, k.fitted.r_tri, 1.0)
    rate = k.fitted.e_attn * c.rate_bf16 * kernel * own / (own + k.held.attention_ramp) * head_speed(c.qk_size)
    forward = flops / rate + k.held.gap_s
    return forward, 2.5 * k.held.backward_attention * flops / rate + 2 * k.held.gap_s


def unfused_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of attention as two batched products and a softmax over all scores."""
    # The value product has the head size as its width: tiles of 64 are filled only in part by heads of 80 or 96.
    fill = c.v_size / (np.ceil(c.v_size / 64) * 64)
    flops = 2 * c.tokens * c.sequence * c.heads / c.tp * (c.qk_size + c.v_size / fill)
    products = flops / (k.fitted.c_att * k.fitted.e_gemm * c.rate_bf16)
    scores = 2 * c.heads / c.tp * c.sequence * c.tokens * k.fitted.c_mem / c.hbm_Bps
    return products + 6 * scores + 4 * k.held.gap_s, 2 * products + 8 * scores + 6 * k.held.gap_s


def attention_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of one layer's attention core."""
    flash, unfused = flash_s(c, k), unfused_s(c, k)
    return (np.where(c.flash > 0, flash[0], unfused[0]), np.where(c.flash > 0, flash[1], unfused[1]))


def memory_s(c: Case, k: Constants, elements: Floats) -> Floats:
    """Return the time of passes over so many 2-byte elements, slower where code is not compiled or fused."""
    eager = np.where(c.eager > 0, k.fitted.c_eag, 1.0)
    return 2 * elements * k.fitted.c_mem * eager / c.hbm_Bps
