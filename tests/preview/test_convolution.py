"""Convolutions are priced as the products they are; a step's launches are the host's."""

from __future__ import annotations

import pytest

from syncline.preview import convolution
from syncline.preview.record import Kernel

IMAGES, SIDE, TAPS = 256, 56, 9


def kernel(name: str, inner: int, out: int, mask: list[bool] | None = None) -> Kernel:
    given, weight, result = (IMAGES, inner, SIDE, SIDE), (out, inner, 3, 3), (IMAGES, out, SIDE, SIDE)
    shapes = (result, given, weight) if mask else (given, weight)
    ins = tuple((shape, "bfloat16", 0) for shape in shapes)
    return Kernel(f"aten.{name}.default", 0, ins, ((result, "bfloat16", 0),), [mask], {}, False, False, False, "aten")


def test_operations_are_counted_by_hand() -> None:
    forward = 2 * IMAGES * SIDE * SIDE * 64 * 64 * TAPS
    assert convolution.flops(kernel("convolution", 64, 64)) == forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [True, True, False])) == 2 * forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [False, True, False])) == forward


def test_narrow_layers_run_at_the_rate_of_the_cache() -> None:
    sms, fast = 132, 700e12
    narrow, wide = (kernel("convolution", 64, n) for n in (64, 256))
    speed = [convolution.flops(each) / convolution.seconds(each, fast, sms) for each in (narrow, wide)]
    cache = sms * convolution.CACHE_BPS_PER_SM
    assert speed == pytest.approx([128 * 64 / 192 * cache, 128 * 256 / 384 * cache])
    assert convolution.seconds(narrow, 1e12, sms) == pytest.approx(convolution.flops(narrow) / 1e12)  # a slow GPU


def test_three_channels_cost_as_much_as_eight() -> None:
    three, eight = (convolution.seconds(kernel("convolution", n, 64), 700e12, 132) for n in (3, 8))
    assert three == eight


def test_a_gradient_of_the_weight_alone_is_no_copy() -> None:
    alone = kernel("convolution_backward", 64, 64, [False, True, False])
    assert convolution.is_convolution(alone)
    assert convolution.seconds(alone, 700e12, 132) > 0
