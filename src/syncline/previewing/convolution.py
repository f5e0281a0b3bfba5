"""A convolution as the matrix products that a GPU makes of it, and what they take.

Forward, gradient of the input and gradient of the weight are products of (images x pixels), output channels and (input
channels x taps), each in its own order. Input channels are padded to 8, channels to tiles of 64. The wide side of a
product is gathered tap by tap through the multiprocessor's own cache, a line for each pixel, before it is multiplied:
narrow layers have little work for each element gathered, and a pixel of few channels fills little of a line.
"""

from __future__ import annotations

import math

from syncline.previewing.record import KernelCall

ALIGNED, TILE, WIDEST, LINE_BYTES = 8, 64, 256, 128
CACHE_BPS_PER_SM = 136e9  # 80 bytes a clock: convolutions of 64 to 512 channels timed on an H200
Product = tuple[int, int, int]


def is_convolution(kernel: KernelCall) -> bool:
    """Whether a kernel is a convolution or the gradient of one, and its shapes are known."""
    name = kernel.name.split(".")[1] if "." in kernel.name else kernel.name
    return name in ("convolution", "convolution_backward", "_convolution", "cudnn_convolution") and len(kernel.ins) > 1


def products(kernel: KernelCall, aligned: int = 1) -> tuple[Product, ...]:
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


def flops(kernel: KernelCall) -> float:
    """Return the operations of a convolution."""
    return float(sum(2 * m * n * depth for m, n, depth in products(kernel)))


def seconds(kernel: KernelCall, rate: float, num_sms: int) -> float:
    """Return what the products of a convolution take at the best rate of the matrix units."""
    weight = [shape for shape, _, _ in kernel.ins if len(shape) >= 3][2 if "backward" in kernel.name else 1]
    line = min(1.0, 2 * math.ceil(weight[1] / ALIGNED) * ALIGNED / LINE_BYTES)
    cache_Bps = CACHE_BPS_PER_SM * num_sms * line
    return sum(_one(*product, rate, cache_Bps) for product in products(kernel, ALIGNED))


def _one(m: int, n: int, depth: int, rate: float, cache_Bps: float) -> float:
    narrow = min(m, n)
    padded = math.ceil(m / TILE) * TILE * math.ceil(n / TILE) * TILE
    gathered = 2.0 * (m * n / narrow) * depth * math.ceil(narrow / WIDEST)  # the wide side, once for each tile across
    return 2.0 * padded * depth / rate + gathered / cache_Bps


def turned_elements(kernel: KernelCall) -> float:
    """Return the elements of operands whose channels are not innermost: matrix units want them so, and they are copied.

    Operands of 32 bits are taken as they are.
    """
    given = kernel.args[: 2 if "backward" in kernel.name else 1]
    images = [
        a for a in given if isinstance(a, dict) and len(a.get("shape", ())) == 4 and "32" not in str(a.get("dtype"))
    ]
    return float(sum(math.prod(a["shape"]) for a in images if a["stride"][1] != 1 and a["shape"][1] > 1))
