"""A convolution as the matrix products that a GPU makes of it, and what they take.

Forward, gradient of the input and gradient of the weight are products of (images x pixels), output channels and (input
channels x taps), each in its own order. Channels are padded to tiles of 64. With several taps the wide side of a
product is gathered tap by tap through the multiprocessor's own cache. Matrix units want channels innermost: operands
that lie otherwise are copied first and the result is copied back; with one tap and no stride nothing has to be. Few
input channels leave the matrix units. Where each channel is convolved alone, vector units do the work tap by tap.
Groups of other sizes run in one kernel, or one after the other.

Constants were read from profiles of 270 convolutions of torch 2.11 and cuDNN 9 on an H200: 2-D and 3-D, 16 and 32 bits,
both layouts; those of groups from 136 shapes timed alone (`research/preview/h200-host.json`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from syncline.previewing.record import KernelCall

TILE, WIDEST, FEW = 64, 256, 8
GATHER_BPS_PER_SM = 179e9  # 94 bytes a clock
IN_TF32 = 0.75  # of the rate of TF32 products: kernels of the generation before
OF_WEIGHT = 1.77  # times longer the gradient of the weight takes: it sums over all pixels
COPIED = 1.57  # times longer a copy to another layout takes than reading and writing once
UNALIGNED, ALIGNED_BYTES = 0.37, 16
"""Of the rate of products where the images are read as they lie and do not begin at multiples of so many bytes."""
PASSES = 0.94  # of the memory rate that a product reaches
LAUNCHES_S = 15e-6  # of each product: cuDNN clears, scales and reduces around it
FEW_CHANNELS = 0.37  # of the vector units' rate
WIDE_DILATION = 16  # from which on cuDNN's gradient of the weight leaves the matrix units
APART, APART_LAUNCHES = 5.0, 2.0
"""Times longer the work and the launches of groups take that run one after the other."""
TOGETHER, WIDE_GROUP = 42, 128
"""Channels of a group in 16 bits between which cuDNN runs groups one after the other, but for powers of two."""
OF_IMAGE = 2.7  # times longer the gradient of the images takes in 16 bits where groups have 64 to 128 channels
FEW_LAST = 1.8  # with channels innermost
ALONE, ALONE_LAST = (24.0, 40.0), {2: (6.3, 9.7), 4: (13.0, 90.0)}
"""Issues for a multiplication where each channel is convolved alone, forward and backward: torch's kernel for images
whose channels are outermost, cuDNN's for innermost, by bytes of an element; its gradient of weights in 32 bits is slow
(of windows of 7 x 7)."""
BIAS_ISSUES, BIAS_GRADIENT_ISSUES = 100, 60  # of an element: cuDNN leaves the bias to kernels of their own
SMALL, OPERATORS = 64, 300
"""Of TorchInductor, which keeps layouts with fewer channels, or with more operators for a convolution."""
Product = tuple[int, int, int]


@dataclass(frozen=True)
class Convolution:
    """What of a call counts: shapes as (rows, columns, depth) of its products, the last one the weight's gradient."""

    products: tuple[Product, ...]
    of_weight: bool  # whether the last product is the gradient of the weight
    out_channels: int
    in_channels: int  # of one group
    groups: int
    taps: int
    pixels: int  # of one image that is read
    strided: bool
    channels_outermost: bool
    dilation: int
    width: int
    moved: float  # elements of images that are read or written
    bias: float  # elements that a bias is added to, or summed over
    visited: float  # multiplications where each channel is convolved alone: gradients of images visit all their pixels

    @property
    def flops(self) -> float:
        return float(sum(2 * m * n * depth * self.groups for m, n, depth in self.products))

    @property
    def apart(self) -> bool:
        """Whether groups run one after the other."""
        wide = min(self.in_channels, self.out_channels)
        return self._in_groups and TOGETHER < wide < WIDE_GROUP and bool(wide & (wide - 1))

    def slower(self, *, of_weight: bool) -> float:
        """Return how much longer the gradient of the weight, or of the images, takes."""
        if of_weight:
            return 1.0 if self._in_groups else OF_WEIGHT
        return OF_IMAGE if self._in_groups and TILE <= min(self.in_channels, self.out_channels) <= 2 * TILE else 1.0

    @property
    def _in_groups(self) -> bool:
        return self.groups > 1 and self.width < 4


def is_convolution(kernel: KernelCall) -> bool:
    """Whether a kernel is a convolution or the gradient of one, and its shapes are known."""
    name = kernel.name.split(".")[1] if "." in kernel.name else kernel.name
    return name in ("convolution", "convolution_backward", "_convolution", "cudnn_convolution") and len(kernel.ins) > 1


def read(kernel: KernelCall) -> Convolution:
    """Return what counts of a convolution or of the gradient of one."""
    backward = "backward" in kernel.name
    shapes = [shape for shape, _, _ in kernel.ins if len(shape) >= 3]
    image, weight = (shapes[1], shapes[2]) if backward else (shapes[0], shapes[1])
    out = shapes[0] if backward else kernel.outs[0][0]
    transposed = len(kernel.args) > 6 and kernel.args[7 if backward else 6] is True
    wide, narrow = (image, out) if transposed else (out, image)  # the side with the weight's first channels, the other
    pixels, taps = wide[0] * math.prod(wide[2:]), math.prod(weight[2:])
    groups = max(narrow[1] // weight[1], 1)
    outs, inner = weight[0] // groups, weight[1]
    forward, other = (pixels, outs, inner * taps), (pixels, inner, outs * taps)
    mask = [True, True, False]
    if backward and isinstance(kernel.args[-1], list):
        mask = [bool(each) for each in kernel.args[-1]]
    asked: list[Product] = []
    if not backward:
        asked.append(other if transposed else forward)
    else:
        if mask[0]:
            asked.append(forward if transposed else other)
        if mask[1]:
            asked.append((outs, inner * taps, pixels))
    images = [
        arg for arg in kernel.args[: 2 if backward else 1] if isinstance(arg, dict) and len(arg.get("shape", ())) > 2
    ]
    with_bias = mask[2] if backward else len(kernel.args) > 2 and isinstance(kernel.args[2], dict)
    return Convolution(
        products=tuple(asked),
        of_weight=backward and mask[1],
        out_channels=outs,
        in_channels=inner,
        groups=groups,
        taps=taps,
        pixels=math.prod(image[2:]),
        strided=math.prod(narrow[2:]) > 1.5 * math.prod(wide[2:]),
        channels_outermost=any(_outermost(arg) for arg in images),
        dilation=_most(kernel.args[6 if backward else 5 : 7 if backward else 6]),
        width=4 if kernel.ins[0][1] == "float32" else 2,
        moved=float(math.prod(out) + math.prod(image) * (1 + (backward and mask[0]))),
        bias=float(math.prod(out)) if with_bias else 0.0,
        visited=float(taps * (math.prod(image) * mask[0] + math.prod(out) * mask[1] if backward else math.prod(out))),
    )


def _most(given: list[object]) -> int:
    """Return the largest of a list of sizes that is an argument."""
    return (
        max((int(each) for each in given[0] if isinstance(each, int)), default=1)
        if given and isinstance(given[0], list)
        else 1
    )


def _outermost(image: Mapping[str, list[int]]) -> bool:
    return image["shape"][1] > 1 and image["stride"][1] != 1


def innermost(kernel: KernelCall) -> KernelCall:
    """Return a convolution whose images have their channels innermost."""
    images = 2 if "backward" in kernel.name else 1
    args = [_last(arg) if place < images and isinstance(arg, dict) else arg for place, arg in enumerate(kernel.args)]
    return kernel._replace(args=args)


def _last(image: Mapping[str, list[int]]) -> dict[str, object]:
    _, channels, *sides = image["shape"]
    steps = [channels * math.prod(sides[place + 1 :]) for place in range(len(sides))]
    return {**image, "stride": [channels * math.prod(sides), 1, *steps]}


def laid_innermost(kernels: Collection[KernelCall], operators: int) -> bool:
    """Whether TorchInductor lays the images of compiled code so, by its own rule: forward convolutions, operators."""
    weights = [shapes[1] for shapes in ([s for s, _, _ in k.ins if len(s) >= 3] for k in kernels) if len(shapes) > 1]
    grouped = any(read(kernel).groups > 1 and read(kernel).in_channels > 1 for kernel in kernels)
    narrows = any(2 * weight[0] <= weight[1] and weight[2] > 1 for weight in weights)
    small = all(max(weight[:2]) <= SMALL for weight in weights)
    return bool(weights) and operators < OPERATORS * len(weights) and not (grouped or narrows or small)


def flops(kernel: KernelCall) -> float:
    """Return the operations of a convolution."""
    return read(kernel).flops


def seconds(kernel: KernelCall, rate: float, num_sms: int, memory_Bps: float, issues_per_s: float) -> float:
    """Return what a convolution takes at the best rate of the matrix units."""
    conv = read(kernel)
    bias = (BIAS_GRADIENT_ISSUES if conv.of_weight else BIAS_ISSUES) * conv.bias / issues_per_s
    touched_s = conv.moved * conv.width / (memory_Bps * PASSES)
    backward = "backward" in kernel.name
    if conv.groups > 1 and conv.in_channels == 1:
        issues = (ALONE if conv.channels_outermost else ALONE_LAST[conv.width])[backward]
        return max(conv.visited * issues / issues_per_s, touched_s) + LAUNCHES_S
    if conv.groups == 1 and min(conv.in_channels, conv.out_channels) < FEW:
        reached = FEW_CHANNELS * (1.0 if conv.channels_outermost else FEW_LAST)
        return max(conv.flops / (2 * issues_per_s * reached), touched_s) + bias + LAUNCHES_S
    plain = conv.taps == 1 and not conv.strided
    rate *= IN_TF32 if conv.width == 4 else 1.0
    each_s = touched_s / len(conv.products) if conv.products else 0.0
    spent, products_s = bias, 0.0
    for number, (m, n, depth) in enumerate(conv.products):
        wide, narrow = max(m, n), min(m, n)
        work = 2.0 * wide * math.ceil(narrow / TILE) * TILE * depth * conv.groups / rate
        gathered = 0.0 if plain else conv.width * wide * depth * conv.groups * math.ceil(narrow / WIDEST)
        of_weight = conv.of_weight and number == len(conv.products) - 1
        if of_weight and conv.dilation >= WIDE_DILATION:
            spent += m * n * depth * conv.groups / (issues_per_s * FEW_CHANNELS)
            continue
        slower = conv.slower(of_weight=of_weight) if backward else 1.0
        slower *= APART if conv.apart else 1.0
        products_s += work * slower
        launches = APART_LAUNCHES * conv.groups if conv.apart else 1.0
        spent += max((work + gathered / (GATHER_BPS_PER_SM * num_sms)) * slower, each_s) + launches * LAUNCHES_S
    copied_s = COPIED * 2 * conv.moved * conv.width / memory_Bps
    if conv.channels_outermost and not plain:
        spent += copied_s
    elif conv.channels_outermost and conv.pixels * conv.width % ALIGNED_BYTES:
        spent += min(copied_s, products_s * (1 / UNALIGNED - 1))
    return spent
