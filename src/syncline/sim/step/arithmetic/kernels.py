"""Time of single kernels: matrix products, attention, and what only moves memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from syncline.sim.step.case import Case, Floats, pick
from syncline.sim.step.constants import Constants

TILE = 128


class Chip(Protocol):
    """What a matrix product needs to know of a part."""

    @property
    def num_sms(self) -> Floats | float: ...

    @property
    def hbm_Bps(self) -> Floats | float: ...


def gemm_s(
    c: Chip, k: Constants, m: Floats, n: Floats, depth: Floats, out_bytes: Floats | float, rate: Floats
) -> Floats:
    """Return the time of an m x n product over `depth`; 0 where it is empty.

    Arithmetic at the sustained rate, the part of the output pass that is not hidden (which is how a small depth costs
    more per operation), a share of the last wave of tiles, and the gap to the next kernel.
    """
    if any(np.ndim(size) == 0 and size == 0 for size in (n, depth, m)):  # a product that the whole block does not have
        return np.zeros(())
    work = 2 * m * n * depth / (k.fitted.e_gemm * rate)
    waves = np.maximum(np.ceil(m / TILE) * np.ceil(n / TILE) / 2 / c.num_sms, 0.25)
    output = k.held.out_share * out_bytes * m * n / c.hbm_Bps
    return pick(m * n * depth > 0, work * (1 + k.held.tail / waves) + output + k.held.gap_s, 0.0)


#: Elements to which a matrix dimension must align for the tensor cores to take it at full speed (16 bytes).
ALIGNED = 8
#: Speed of batched products whose rows do not align: they leave the tensor cores. BigScience's trials of head sizes
#: 108, 150 and 450 (tr11 chronicles) against 104, 144 and 216 ask for a tenth; the vector rate of an A100 is a ninth.
UNALIGNED_BATCH = 0.1
#: Speed of a large product with one unaligned dimension. nanoGPT's step fell by a quarter when a vocabulary of 50,257
#: was padded to 50,304.
UNALIGNED = 0.45


def head_speed(size: Floats, at_64: Floats | float = 0.75) -> Floats:
    """Return how well a flash kernel uses the matrix units at a head size, 128 = 1.

    Kernels exist for multiples of 32 (64 above 128); other sizes are padded. Small heads leave less arithmetic per
    element of softmax, which costs the more the faster a part multiplies: `at_64` is the speed at head size 64 (0.75 on
    Hopper); the line between is interpolated.
    """
    padded = pick(size <= 128, np.ceil(size / 32) * 32, np.ceil(size / 64) * 64)
    lost = np.interp(padded, [32.0, 64.0, 96.0, 128.0, 256.0], [2.2, 1.0, 0.4, 0.0, 0.0])
    return np.maximum(1.0 - lost * (1.0 - at_64), 0.1) * size / padded


def flash_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of fused attention in one layer."""
    flops = 2 * c.tokens * c.span * c.heads / c.tp * (c.qk_size + c.v_size)
    own = c.sequence / c.cp
    kernel = c.kernel * pick(c.triton > 0, k.fitted.r_tri, 1.0)
    rate = k.fitted.e_attn * c.rate_bf16 * kernel * own / (own + k.held.attention_ramp)
    rate = rate * head_speed(c.qk_size, c.head64)
    forward = flops / rate + k.held.gap_s
    return forward, 2.5 * k.held.backward_attention * flops / rate + 2 * k.held.gap_s


def unfused_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of attention as two batched products and a softmax over all scores."""
    # The value product has the head size as its width: tiles of 64 are filled only in part by heads of 80 or 96.
    fill = c.v_size / (np.ceil(c.v_size / 64) * 64)
    flops = 2 * c.tokens * c.sequence * c.heads / c.tp * (c.qk_size + c.v_size / fill)
    aligned = (np.mod(c.qk_size, ALIGNED) == 0) & (np.mod(c.v_size, ALIGNED) == 0)
    products = flops / (k.fitted.c_att * k.fitted.e_gemm * c.rate_bf16 * pick(aligned, 1.0, UNALIGNED_BATCH))
    scores = 2 * c.heads / c.tp * c.sequence * c.tokens * k.fitted.c_mem / c.hbm_Bps
    return products + 6 * scores + 4 * k.held.gap_s, 2 * products + 8 * scores + 6 * k.held.gap_s


def attention_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward time of one layer's attention core."""
    if np.all(c.flash > 0):
        return flash_s(c, k)
    flash, unfused = flash_s(c, k), unfused_s(c, k)
    return (pick(c.flash > 0, flash[0], unfused[0]), pick(c.flash > 0, flash[1], unfused[1]))


def memory_s(c: Case, k: Constants, elements: Floats) -> Floats:
    """Return the time of passes over so many 2-byte elements, slower where code is not compiled or fused."""
    eager = pick(c.eager > 0, k.fitted.c_eag, 1.0)
    return 2 * elements * k.fitted.c_mem * eager / c.hbm_Bps
