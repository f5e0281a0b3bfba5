"""What fused attention takes on a GPU: cuDNN's and flash kernels, the memory-efficient one, and that in 32 bits.

A block of queries walks the keys it sees: short rows leave it little to do beside starting up, so the rate rises with
the keys that a query sees on average. Small heads leave less arithmetic for each element of the softmax. The rates are
those of profiles of torch 2.11 on an H200: heads of 24 to 128, rows of 49 to 8,192, causal and not, with dropout and
without, with a mask and without.
"""

from __future__ import annotations

import math

import numpy as np

from syncline.previewing.record import KernelCall

FORWARD, BACKWARD = 0.82, 0.71  # of the best rate of products that cuDNN's kernels reach on long rows, heads of 128
RAMP_KEYS = 500.0  # keys a query sees at which half of that is reached
HEADS, SPEED = (32.0, 64.0, 96.0, 128.0), (0.42, 0.87, 0.93, 1.0)  # heads are padded to a multiple of 16
DROPPED = {False: 0.52, True: 0.88}  # forward and backward with dropout: a random number for each score
MASKED = {False: 0.6, True: 0.53}  # with a mask, which is read score by score
EFFICIENT = 0.155  # of that rate, the memory-efficient kernel (with a bias); rows and keys come in tiles
SCORE_OPS, OF_VECTORS = {False: 510, True: 1170}, {False: 0.65, True: 0.54}
"""In 32 bits, which products are emulated in: least operations of the vector units for a score, forward and backward,
and the share of their rate on wide heads; rows and keys come in tiles (`research/preview/h200-host.json`)."""
TILE, BELOW_DIAGONAL = 64, (0.6, 1.2)  # of all scores, what causal attention takes in 32 bits: and 1.2 over tiles


def executed_flops(kernel: KernelCall) -> float:
    """Return the operations of attention; of causal attention, those below the diagonal."""
    return kernel.flops * (0.5 if is_causal(kernel) else 1.0)


def is_causal(kernel: KernelCall) -> bool:
    """Whether attention was asked for what lies below the diagonal: one of its switches, by its place."""
    efficient = "efficient" in kernel.name and "backward" not in kernel.name
    switches = kernel.args[6:] if efficient else kernel.args[3:]  # before them this one has whether to keep its sums
    return any(arg is True for arg in switches) or kernel.kwargs.get("is_causal") is True


def seconds(kernel: KernelCall, rate: float, vector_rate: float, speed: float) -> float:
    """Return what attention takes at the best rate of products, `speed` of what cuDNN's kernels reach on a Hopper."""
    backward = "backward" in kernel.name
    query, key = [shape for shape, _, _ in kernel.ins if len(shape) == 4][1 if backward else 0 :][:2]
    keys = key[2] * (0.5 if is_causal(kernel) else 1.0)
    head = math.ceil(query[-1] / 16) * 16
    efficient = "efficient" in kernel.name
    rows, columns = (math.ceil(side / TILE) * TILE for side in (query[2], key[2]))
    reached = query[2] * key[2] / (rows * columns) * EFFICIENT if efficient else keys / (keys + RAMP_KEYS)
    if kernel.ins[0][1] == "float32":
        least, more = BELOW_DIAGONAL if is_causal(kernel) else (1.0, 0.0)
        scores = query[0] * query[1] * rows * columns * min(1.0, least + more * TILE / columns)
        each = (10 if backward else 4) * query[3]
        return scores * max(SCORE_OPS[backward], each / OF_VECTORS[backward]) / vector_rate
    reached *= (BACKWARD if backward else FORWARD) * speed
    reached *= float(np.interp(head, HEADS, SPEED)) * query[-1] / head
    if any(isinstance(arg, float) and 0 < arg < 1 for arg in kernel.args):
        reached *= DROPPED[backward]
    if "cudnn" in kernel.name:  # torch takes it for what has a mask
        reached *= MASKED[backward]
    return executed_flops(kernel) / (rate * reached)
