"""Convolutions are priced as the products they are, attention by the keys that a query sees."""

from __future__ import annotations

import pytest

from syncline.previewing.kernels import attention, convolution
from syncline.previewing.record import KernelCall

IMAGES, SIDE, TAPS = 256, 56, 9
RATE, SMS, MEMORY, ISSUES = 700e12, 132, 4e12, 33e12


def kernel(
    name: str, inner: int, out: int, mask: list[bool] | None = None, taps: int = 3, last: bool = True, groups: int = 1
) -> KernelCall:
    given, result = (IMAGES, groups * inner, SIDE, SIDE), (IMAGES, groups * out, SIDE, SIDE)
    weight = (groups * out, inner, taps, taps)
    shapes = (result, given, weight) if mask else (given, weight)
    ins = tuple((shape, "bfloat16", 0) for shape in shapes)
    args: list[object] = [{"shape": list(shape), "stride": [1, 1 if last else SIDE**2, 1, 1]} for shape in shapes]
    return KernelCall(
        f"aten.{name}.default", 0, ins, ((result, "bfloat16", 0),), [*args, mask], {}, False, False, False, "aten"
    )


def seconds(call: KernelCall) -> float:
    return convolution.seconds(call, RATE, SMS, MEMORY, ISSUES)


def test_operations_are_counted_by_hand() -> None:
    forward = 2 * IMAGES * SIDE * SIDE * 64 * 64 * TAPS
    assert convolution.flops(kernel("convolution", 64, 64)) == forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [True, True, False])) == 2 * forward
    assert convolution.flops(kernel("convolution_backward", 64, 64, [False, True, False])) == forward


def test_narrow_layers_wait_for_what_they_gather() -> None:
    """Each element of the wide side is gathered once: two bytes beside 2 x 64, or 2 x 256, operations."""
    for out in (64, 256):
        by_hand = 2 * out / RATE + 2 / (SMS * convolution.GATHER_BPS_PER_SM)  # for an element that is gathered
        elements = IMAGES * SIDE * SIDE * 64 * TAPS
        assert seconds(kernel("convolution", 64, out)) == pytest.approx(elements * by_hand + convolution.LAUNCHES_S)


def test_images_with_channels_outermost_are_copied_both_ways_unless_there_is_one_tap() -> None:
    moved = 2 * IMAGES * 64 * SIDE * SIDE
    last, first = (seconds(kernel("convolution", 64, 64, last=last)) for last in (True, False))
    assert first - last == pytest.approx(convolution.COPIED * 2 * moved * 2 / MEMORY)
    assert seconds(kernel("convolution", 64, 64, taps=1, last=False)) == seconds(kernel("convolution", 64, 64, taps=1))


def test_compiled_images_lie_with_their_channels_innermost_by_the_compilers_own_rule() -> None:
    wide, narrow = kernel("convolution", 128, 128, last=False), kernel("convolution", 64, 64, last=False)
    assert seconds(convolution.innermost(wide)) == seconds(kernel("convolution", 128, 128))
    assert convolution.laid_innermost([wide, narrow], 599)
    assert not convolution.laid_innermost([wide, narrow], 600)  # too many operators beside two convolutions
    assert not convolution.laid_innermost([narrow], 10) and not convolution.laid_innermost([], 0)
    assert not convolution.laid_innermost([wide, kernel("convolution", 256, 128)], 10)  # one that narrows


def test_few_input_channels_leave_the_matrix_units() -> None:
    call = kernel("convolution", 3, 64, last=False)
    by_hand = convolution.flops(call) / (2 * ISSUES * convolution.FEW_CHANNELS)
    assert seconds(call) == pytest.approx(by_hand + convolution.LAUNCHES_S)


def test_the_gradient_of_the_weight_takes_longer_than_that_of_the_input() -> None:
    weight = seconds(kernel("convolution_backward", 256, 256, [False, True, False]))
    image = seconds(kernel("convolution_backward", 256, 256, [True, False, False]))
    assert weight - convolution.LAUNCHES_S == pytest.approx(convolution.OF_WEIGHT * (image - convolution.LAUNCHES_S))


def attend(length: int, head: int, *switches: object, dtype: str = "bfloat16", name: str = "flash") -> KernelCall:
    shape = (2, 4, length, head)
    ins = tuple((shape, dtype, 0) for _ in range(3))
    flops = 4 * 2 * 4 * length * length * head
    operator = f"aten._scaled_dot_product_{name}_attention.default"
    return KernelCall(operator, flops, ins, (), ["q", "k", "v", *switches], {}, False, False, False, "aten")


def test_attention_rises_with_the_keys_that_a_query_sees() -> None:
    call = attend(2048, 128, 0.0, True)  # causal: half of the keys
    reached = attention.FORWARD * 1024 / (1024 + attention.RAMP_KEYS)
    assert attention.seconds(call, RATE, 2 * ISSUES, 1.0) == pytest.approx(call.flops / 2 / (RATE * reached))


def test_dropout_and_small_heads_slow_attention() -> None:
    plain, dropped, small = (attend(1024, 64, 0.0), attend(1024, 64, 0.1), attend(1024, 24, 0.0))
    took = [attention.seconds(call, RATE, 2 * ISSUES, 1.0) / call.flops for call in (plain, dropped, small)]
    assert took[1] == pytest.approx(took[0] / attention.DROPPED[False])
    assert took[2] > 2 * took[0]


def test_attention_in_32_bits_leaves_the_matrix_units() -> None:
    call = attend(1024, 64, None, True, 0.0, dtype="float32", name="efficient")
    query = call.ins[0][0]
    scores = query[0] * query[1] * 1024 * 1024
    took = scores * attention.SCORE_OPS[False] / (2 * ISSUES)
    assert attention.seconds(call, RATE, 2 * ISSUES, 1.0) == pytest.approx(took)


def test_the_memory_efficient_kernel_takes_whole_tiles() -> None:
    few, many = (attend(keys, 64, 0.0, dtype="bfloat16", name="efficient") for keys in (49, 64))
    one, other = (attention.seconds(call, RATE, 2 * ISSUES, 1.0) for call in (few, many))
    assert one == pytest.approx(other)


def test_alone_in_32_bits_the_gradient_of_a_channels_weight_is_slow() -> None:
    half = kernel("convolution_backward", 1, 1, [True, True, False], taps=7, groups=96)
    full = half._replace(ins=tuple((shape, "float32", elements) for shape, _, elements in half.ins))
    assert seconds(full) > 8 * seconds(half)


def test_groups_of_a_convolution_run_together_where_their_channels_are_a_power_of_two() -> None:
    together, apart = (seconds(kernel("convolution", wide, wide, groups=4)) for wide in (64, 56))
    alone = seconds(kernel("convolution", 64, 64))
    assert together == pytest.approx(4 * alone - 3 * convolution.LAUNCHES_S)
    assert apart > 4 * together
