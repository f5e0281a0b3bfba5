"""A convolution as the matrix products that a GPU makes of it, and what they take.

Forward, gradient of the input and gradient of the weight are products of (images x pixels), output channels and (input
channels x taps), each in its own order. Input channels are padded to 8, channels to tiles of 64. The operands of a tile
come through the second-level cache once for each slice of the depth, so narrow layers run at that cache's rate and not
at that of the matrix units.
"""

from __future__ import annotations

import math

from syncline.preview.record import Kernel

ALIGNED, TILE, ROWS, WIDEST = 8, 64, 128, 256
CACHE_BPS_PER_SM = 41.7e9  # 5.5 TB/s on the 132 multiprocessors of an H100, as read by microbenchmarks
Product = tuple[int, int, int]


def is_convolution(kernel: Kernel) -> bool:
    """Whether a kernel is a convolution or the gradient of one, and its shapes are known."""
    name = kernel.name.split(".")[1] if "." in kernel.name else kernel.name
    return name in ("convolution", "convolution_backward", "_convolution", "cudnn_convolution") and len(kernel.ins) > 1


def products(kernel: Kernel, aligned: int = 1) -> tuple[Product, ...]:
    """Return rows, columns and depth of each product of a convolution; of a gradient, those that are asked for.

    Input channels are padded to a multiple of `aligned`.
    """
    backward = "backward" in kernel.name
    shapes = [shape for shape, _, _ in kernel.ins if len(shape) >= 3]
    grad, weight = (shapes[0], shapes[2]) if backward else (kernel.outs[0][0], shapes[1])
    pixels = grad[0] * math.prod(grad[2:])
    out, taps = weight[0], math.prod(weight[2:])
    inner = math.ceil(weight[1] / aligned) * aligned  # input channels of one group
    if not backward:
        return ((pixels, out, inner * taps),)
    mask = kernel.args[-1] if isinstance(kernel.args[-1], list) else [True, True, False]
    found: list[Product] = []
    if mask[0]:  # of the input: as many operations as the forward, to the channels that came in
        found.append((pixels, inner, out * taps))
    if len(mask) > 1 and mask[1]:
        found.append((out, inner * taps, pixels))
    return tuple(found)


def flops(kernel: Kernel) -> float:
    """Return the operations of a convolution."""
    return float(sum(2 * m * n * depth for m, n, depth in products(kernel)))


def seconds(kernel: Kernel, rate: float, num_sms: int) -> float:
    """Return what the products of a convolution take at a sustained rate of the matrix units."""
    return sum(_one(*product, rate, num_sms) for product in products(kernel, ALIGNED))


def _one(m: int, n: int, depth: int, rate: float, num_sms: int) -> float:
    tall, wide = _tile(m, ROWS), _tile(n, WIDEST)
    per_byte = 2 * tall * wide / (2.0 * (tall + wide))  # of two-byte operands
    reached = min(rate, per_byte * CACHE_BPS_PER_SM * num_sms)
    padded = math.ceil(m / TILE) * TILE * math.ceil(n / TILE) * TILE
    return 2.0 * padded * depth / reached


def _tile(size: int, most: int) -> int:
    return min(most, math.ceil(size / TILE) * TILE)
