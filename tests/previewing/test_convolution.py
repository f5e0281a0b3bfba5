"""Convolutions are priced as the products they are; a step's launches are the host's."""

from __future__ import annotations

import pytest

from syncline.previewing import convolution
from syncline.previewing.record import KernelCall

IMAGES, SIDE, TAPS = 256, 56, 9


def kernel(name: str, inner: int, out: int, mask: list[bool] | None = None) -> KernelCall:
    given, weight, result = (IMAGES, inner, SIDE, SIDE), (out, inner, 3, 3), (IMAGES, out, SIDE, SIDE)
    shapes = (result, given, weight) if mask else (given, weight)
    ins = tuple((shape, "bfloat16", 0) for shape in shapes)
    return KernelCall(
        f"aten.{name}.default", 0, ins, ((result, "bfloat16", 0),), [mask], {}, False, False, False, "aten"
    )


def test_operations_are_counted_by_hand() -> None:
    forward = 2 * IMAGES * SIDE * SIDE * 64 * 64 * TAPS
    assert convolution.flops(kernel("convolution", 64, 64)) == forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [True, True, False])) == 2 * forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [False, True, False])) == forward


def test_narrow_layers_wait_for_what_they_gather() -> None:
    """Each element of the wide side is gathered once: two bytes beside 2 x 64, or 2 x 256, operations."""
    sms, fast = 132, 700e12
    cache = sms * convolution.CACHE_BPS_PER_SM
    for out in (64, 256):
        layer = kernel("convolution", 64, out)
        by_hand = 2 * out / fast + 2 / cache  # for an element that is gathered
        elements = IMAGES * SIDE * SIDE * 64 * TAPS
        assert convolution.seconds(layer, fast, sms) == pytest.approx(elements * by_hand)


def test_a_pixel_of_few_channels_fills_an_eighth_of_a_line() -> None:
    few = kernel("convolution", 8, 64)
    elements, cache = IMAGES * SIDE * SIDE * 8 * TAPS, 132 * convolution.CACHE_BPS_PER_SM / 8
    assert convolution.seconds(few, 700e12, 132) == pytest.approx(elements * (128 / 700e12 + 2 / cache))


def test_three_channels_cost_as_much_as_eight() -> None:
    three, eight = (convolution.seconds(kernel("convolution", n, 64), 700e12, 132) for n in (3, 8))
    assert three == eight


def test_a_gradient_of_the_weight_alone_is_no_copy() -> None:
    alone = kernel("convolution_backward", 64, 64, [False, True, False])
    assert convolution.is_convolution(alone)
    assert convolution.seconds(alone, 700e12, 132) > 0
