"""Kernels that move memory: the longest of bytes, instructions and how the work is cut, each by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from syncline.previewing.holders import WORKSPACE_BYTES, peak_memory, workspaces
from syncline.previewing.kernels.passes import (
    ALIKE_S,
    CHANNEL_PER_S,
    CHUNKS,
    INTERPOLATED,
    ISSUES,
    JOIN_S,
    KEY_S,
    MIXED,
    NORMALISED,
    OVER_ROWS,
    PLANE_S,
    POOLED,
    REDUCED_S,
    SLICE_S,
    SORT_S,
    SORTED,
    STRIDED,
    SUMMED_ROW_S,
    TURNED,
    WAITING,
    GpuFigures,
    pass_s,
)
from syncline.previewing.record import Capture, CapturedOp, KernelCall

PART = GpuFigures(memory_Bps=1e12, cache_Bps=2e12, issues_per_s=1e13, num_sms=132)
WIDTH = {"float32": 4, "bfloat16": 2}
N = 1 << 20


def tensor(shape: list[int], stride: list[int], dtype: str = "torch.float32") -> dict[str, object]:
    return {"shape": shape, "stride": stride, "dtype": dtype, "on": "cuda"}


def kernel(name: str, args: list[Any], ins: int = 1, outs: int = 1, **kwargs: Any) -> KernelCall:
    shape = ((1024, 1024), "float32", N)
    return KernelCall(
        f"aten.{name}.default", 0, (shape,) * ins, (shape,) * outs, args, kwargs, False, False, False, "aten"
    )


def seconds(name: str, args: list[Any], moved: float, ins: int = 1, **kwargs: Any) -> float:
    return pass_s(kernel(name, args, ins, **kwargs), name, moved, PART, WIDTH)


PLAIN, TURN = tensor([1024, 1024], [1024, 1]), tensor([1024, 1024], [1, 1024])


@pytest.mark.parametrize(
    ("name", "args", "issues"),
    [
        ("add", [PLAIN, PLAIN], 0),
        ("add", [PLAIN, tensor([1024, 1024], [1024, 1], "torch.bfloat16")], MIXED),
        ("mul", [PLAIN, tensor([1024, 1], [1, 1])], STRIDED),
        ("add", [PLAIN, TURN], TURNED),
        ("clone", [TURN], 0),  # as it lies
        ("gelu", [PLAIN], ISSUES["gelu"]),
    ],
)
def test_operands_that_lie_alike_cost_their_bytes(name: str, args: list[Any], issues: int) -> None:
    moved = 8.0 * N
    assert seconds(name, args, moved) == pytest.approx(max(moved / 1e12, N * issues / 1e13))


def test_a_copy_into_rows_turns_what_lies_in_columns() -> None:
    assert seconds("clone", [TURN], 0.0, memory_format="torch.contiguous_format") == pytest.approx(N * TURNED / 1e13)


def test_a_softmax_reads_its_rows_twice_more_from_the_cache() -> None:
    assert seconds("_log_softmax", [PLAIN], 8.0 * N) == pytest.approx(8e-12 * N + 2 * 4 * N / 2e12)


def test_a_normalisation_copies_rows_that_do_not_lie_side_by_side() -> None:
    plain, turned = (seconds("native_layer_norm", [each, [1024]], 8.0 * N) for each in (PLAIN, TURN))
    assert turned - plain == pytest.approx(N * TURNED / 1e13)


def test_a_normalisation_without_a_scale_has_no_gradient_of_it() -> None:
    def backward(mask: list[bool]) -> float:
        return seconds("native_layer_norm_backward", [PLAIN, PLAIN, [1024], None, None, None, None, mask], 12.0 * N, 2)

    both = 2 * 4 * N / (0.75 * OVER_ROWS * 1e12)
    assert backward([True, True, True]) - backward([True, False, False]) == pytest.approx(both)


def test_chunks_of_lists_do_not_divide_evenly() -> None:
    """320 chunks on 132 multiprocessors: the fullest has three, the mean is 2.42."""
    even = CHUNKS / (3 * 132)
    assert seconds("_fused_adamw_", [[PLAIN]], 28.0 * N) == pytest.approx(28e-12 * N / even)


def test_cublas_keeps_a_workspace_for_each_thread_and_for_biases() -> None:
    product = KernelCall("aten.addmm.default", 1, (), (), [], {}, False, False, False, "aten")
    ops = tuple(CapturedOp("kernel", 0, 0, 0, 0, phase, [], None) for phase in ("forward", "backward"))
    captured = Capture(0, 1, ops, (product,), ("",), {}, (), (), ())
    assert workspaces(captured, "Hopper") == 3 * WORKSPACE_BYTES
    assert workspaces(captured, "Ampere") == 3 * (8 << 20)
    assert peak_memory(captured, 1e11, 5).peak_bytes == 5


@pytest.mark.parametrize(("backward", "passes"), [(False, 3), (True, 5)])
def test_a_batch_normalisation_of_few_channels_waits_for_one_block_each(backward: bool, passes: int) -> None:
    name = "native_batch_norm_backward" if backward else "native_batch_norm"

    def took(channels: int, innermost: bool = False) -> float:
        shape = (32, channels, 64, 64)
        given = tensor(list(shape), [1, 1 if innermost else 4096, 64, 1])
        call = KernelCall(
            f"aten.{name}.default",
            0,
            ((shape, "float32", 32 * channels * 4096),),
            (),
            [given],
            {},
            False,
            False,
            False,
            "aten",
        )
        return pass_s(call, name, 0.0, PART, WIDTH)

    memory = passes * 32 * 8 * 4096 * 4 / (NORMALISED * 1e12)
    assert took(8) == pytest.approx(32 * 4096 / CHANNEL_PER_S[backward])
    assert took(8, innermost=True) == pytest.approx(memory)


def test_rows_that_are_added_by_index_are_sorted_first() -> None:
    table, keys, rows = ((1000, 64), "float32", 64000), ((5000,), "int64", 5000), ((5000, 64), "float32", 320000)
    call = KernelCall("aten.index_put.default", 0, (table, keys, rows), (), [True], {}, False, False, False, "aten")
    by_hand = SORT_S + 5000 * KEY_S + 5 * ALIKE_S  # five are added to each row, one after the other
    assert pass_s(call, "index_put", 0.0, PART, WIDTH) == pytest.approx(by_hand)
    spread = call._replace(ins=(((5000, 64), "float32", 320000), keys, rows))
    by_hand = SORT_S + 5000 * KEY_S + 5000 * 64 * 4 / (SORTED * 1e12)
    assert pass_s(spread, "index_put", 0.0, PART, WIDTH) == pytest.approx(max(by_hand, SORT_S + 5000 * KEY_S + ALIKE_S))


def test_single_elements_that_are_added_by_index_take_a_warp_each() -> None:
    table, keys, values = ((512, 27, 27), "float32", 373248), ((351,), "int64", 351), ((512, 351), "float32", 179712)
    given: list[object] = [{}, [None, {}, {}], {}, True]
    call = KernelCall(
        "aten.index_put.default", 0, (table, keys, keys, values), (), given, {}, False, False, False, "aten"
    )
    by_hand = SORT_S + 351 * KEY_S + 512 * 351 * SLICE_S / 132
    assert pass_s(call, "index_put", 0.0, PART, WIDTH) == pytest.approx(by_hand)


def summed(given: tuple[int, ...], out: tuple[int, ...], over: list[int]) -> float:
    sizes = [(shape, "float32", math.prod(shape)) for shape in (given, out)]
    call = KernelCall("aten.sum.dim_IntList", 0, (sizes[0],), (sizes[1],), [{}, over], {}, False, False, False, "aten")
    return pass_s(call, "sum", 4.0 * (math.prod(given) + math.prod(out)), PART, WIDTH)


def test_a_sum_over_rows_joins_the_blocks_that_share_few_columns() -> None:
    wide, few = 4 * (1024 * 65536 + 65536) / 1e12, 4 * (524288 * 128 + 128) / 1e12
    assert summed((1024, 65536), (1, 65536), [0]) == pytest.approx(wide / OVER_ROWS + REDUCED_S)
    joined = JOIN_S * (4 * 132 - 32)  # one block wide, so four on each multiprocessor share it
    assert summed((524288, 128), (1, 128), [0]) == pytest.approx(few / OVER_ROWS + REDUCED_S + joined)


def test_a_sum_of_short_rows_waits_for_its_rows() -> None:
    assert summed((1 << 20, 32), (1 << 20, 1), [1]) == pytest.approx((1 << 20) * SUMMED_ROW_S / 132)


def test_pooling_costs_its_windows() -> None:
    image, out = ((8, 16, 64, 64), "float32", 8 * 16 * 64 * 64), ((8, 16, 32, 32), "float32", 8 * 16 * 32 * 32)
    args: list[object] = [{}, {}, [2, 2], [2, 2]]
    there = KernelCall("aten.avg_pool2d.default", 0, (image,), (out,), args[1:], {}, False, False, False, "aten")
    back = KernelCall(
        "aten.avg_pool2d_backward.default", 0, (out, image), (image,), args, {}, False, False, False, "aten"
    )
    ahead, behind = (pass_s(call, call.name.split(".")[1], 0.0, PART, WIDTH) for call in (there, back))
    element, tap = POOLED["avg_pool2d_backward"]
    assert ahead == pytest.approx(POOLED["avg_pool2d"][1] * 4 * out[2] / 1e13)
    assert behind == pytest.approx((element * image[2] + tap * 4 * out[2]) / 1e13)


@pytest.mark.parametrize("dims", [[3], [2, 3]])
def test_a_transform_is_a_pass_for_each_dimension(dims: list[int]) -> None:
    image = tensor([4, 4, 256, 256], [262144, 65536, 256, 1], "torch.complex64")
    assert seconds("_fft_c2c", [image, dims, 0, True], 8e6) == pytest.approx(len(dims) * 8e6 / PART.memory_Bps)


def test_an_interpolation_walks_over_planes_or_works_element_by_element() -> None:
    """A thread for each of 1,024 pixels walks over 8,192 planes; with channels innermost none waits."""
    small, large = (16, 512, 16, 16), (16, 512, 32, 32)
    for stride, by_hand in (
        ([131072, 256, 16, 1], 8192 * PLANE_S * 4**WAITING),
        ([131072, 1, 8192, 512], INTERPOLATED * math.prod(large) / PART.issues_per_s),
    ):
        one = KernelCall("aten.upsample_bilinear2d.default", 0, ((small, "float32", math.prod(small)),),
                         ((large, "float32", math.prod(large)),), [tensor([*small], stride), [32, 32], False], {},
                         False, False, False, "aten")  # fmt: skip
        assert pass_s(one, "upsample_bilinear2d", 1.0, PART, WIDTH) == pytest.approx(by_hand)
