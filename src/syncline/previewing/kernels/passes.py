"""What a kernel takes that is neither a product, a convolution nor attention: memory, instructions, and how it is cut.

Three bounds, of which the longest counts. Memory: bytes over the sustained rate; what is read again comes from the
second-level cache. Instructions: each element costs some lanes' issues (a division, a random number or an index into a
strided tensor cost many), and a part issues as many a second as it has additions. Cut: a kernel over a list of tensors
is launched for 320 chunks at a time, which do not divide evenly among the multiprocessors; a reduction over rows has
few blocks.

The counts of issues were read from timed kernels of torch 2.11 on an H200, one kernel each (at 1,980 MHz).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncline.previewing.record import KernelCall
from syncline.sim.step.machine import Machine

CACHE_BPS_PER_SM = 41.7e9  # 5.5 TB/s on the 132 multiprocessors of an H100, as read by microbenchmarks
CHUNKS = 320  # of 65,536 elements that one launch over a list of tensors takes
ISSUES = {
    "gelu": 48, "gelu_backward": 63, "randn": 80, "rand": 60, "normal_": 80, "uniform_": 60, "native_dropout": 40,
    "bernoulli_": 60, "randn_like": 80, "rand_like": 60,
    "grid_sampler_2d": 112,
    "_foreach_sqrt": 68, "_foreach_div_": 50, "_foreach_mul_": 50, "_foreach_add_": 50, "_foreach_lerp_": 61,
    "_foreach_addcdiv_": 76, "_foreach_addcmul_": 50, "roll": 300, "index_add": 250, "index_add_": 250,
    "native_batch_norm": 184, "cudnn_batch_norm": 184,
    "native_batch_norm_backward": 143, "cudnn_batch_norm_backward": 143,
    "batch_norm_stats": 116, "batch_norm_elemt": 68, "batch_norm_backward_reduce": 60, "batch_norm_backward_elemt": 83,
    "native_group_norm": 184, "native_group_norm_backward": 203, "_fused_adam_": 175, "_fused_adamw_": 175,
}  # fmt: skip
"""Lanes' issues for an element of the largest tensor. Group normalisation is taken as two of its parts: sums, then a
pass whose scale and shift are looked up for each element."""
STRIDED, MIXED, TURNED = 100, 108, 285
"""For an element of pointwise operators: an index that is worked out dimension by dimension; operands of two types, or
a cast to a wider one; an operand whose innermost dimension is another's, of which a whole sector is read each time."""
UPSAMPLED = 16
"""For an element of the gradient of an interpolation and each that is added to the same place: the more are, the longer
they wait for each other."""
SAMPLED = 3650
"""For an element of the gradient of a sampled image: of small images more are added to one pixel."""
INTERPOLATED = 304
"""For an element of an interpolation whose channels lie side by side."""
PLANE_S, PIXELS, WAITING = 0.167e-6, 256, 0.22
"""Else a thread for each pixel of the result walks over all planes, one after the other: what so many take for one of
them, and the power by which more of them wait longer."""
POOLED = {"max_pool2d_with_indices": (0, 60), "max_pool2d_with_indices_backward": (340, 0), "avg_pool2d": (0, 49),
          "avg_pool2d_backward": (541, 49)}  # fmt: skip
"""For an element of the result, and for each window that it is of: taps of an output, windows over an input."""
TWICE = {  # inputs that are read again, from the cache: sums must be known before the first element is written
    "native_layer_norm": 1, "_fused_rms_norm": 1, "native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2,
    "_softmax": 2, "_log_softmax": 2, "_softmax_backward_data": 2, "_log_softmax_backward_data": 2,
}  # fmt: skip
ROWS = {"native_layer_norm": 1, "_fused_rms_norm": 1, "native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2}
"""Kernels that want the rows of so many of their arguments side by side."""
GRADIENT_OF_SCALE = ("native_layer_norm_backward", "_fused_rms_norm_backward")
OVER_ROWS, REDUCED_S = 0.94, 13e-6
"""Of the memory rate that a reduction over rows reaches, and what it takes to begin and to join blocks."""
COLUMNS, BLOCK_ROWS, FEW_BLOCKS, JOIN_S = 128, 256, 32, 0.25e-6
"""A block takes so many columns and rows; of few columns more blocks share a column, and what each beyond a few adds
to joining them."""
SUMMED_ROW_S, WARP = 29e-9, 32  # of one multiprocessor for a row that is summed, of as many elements or more
ROW_S = 0.264e-6  # of one multiprocessor for a row that is normalised
SCATTERED = ("embedding_dense_backward", "_embedding_bag_backward", "_embedding_bag_dense_backward", "index_put",
             "index_put_", "_unsafe_index_put")  # fmt: skip
SORT_S, KEY_S, SORTED, SLICE_S, EMBEDDED, ALIKE_S = 40e-6, 0.15e-9, 0.53, 25e-9, 480, 1.6e-6
"""Rows that are added where an index says are sorted first: the passes of a radix sort, for each of its keys, of the
memory rate that the sums (of 32 bits at least) reach, of one multiprocessor for each row; and issues for an element of
an embedding's gradient, whose threads walk its rows."""
CHANNEL_PER_S = {False: 1.7e9, True: 0.68e9}  # elements of one block of cuDNN's batch normalisation, forward, backward
OWN_CHANNEL_PER_S = {False: 1.05e9, True: 0.565e9}  # and of torch's own, which takes 16-bit brain floats
NORMALISED = 0.75  # of the memory rate that it reaches
POINTWISE = (
    "mul", "add", "sub", "div", "clone", "copy", "_to_copy", "where", "maximum", "minimum", "masked_fill", "cat",
    "stack",
    "silu_backward", "gelu_backward", "threshold_backward", "sigmoid_backward", "tanh_backward",
)  # fmt: skip


@dataclass(frozen=True)
class GpuFigures:
    """What of a GPU counts here."""

    memory_Bps: float
    cache_Bps: float
    issues_per_s: float
    num_sms: int

    @classmethod
    def of(cls, machine: Machine) -> GpuFigures:
        """Return that of a machine; a fused multiply-add is one issue and two operations."""
        vector = machine.gpu.flops_at("fp32") or 0.25 * machine.num_sms * 1e12
        dies = max(machine.gpu.num_dies, 1)
        return cls(machine.hbm_Bps, CACHE_BPS_PER_SM * machine.num_sms, vector / 2 / dies, machine.num_sms)


def pass_s(kernel: KernelCall, name: str, moved: float, part: GpuFigures, widths: dict[str, int]) -> float:
    """Return what a kernel takes that moves so many bytes."""
    sizes = sorted((n * widths.get(t, 1) for _, t, n in kernel.ins), reverse=True)
    memory = moved / part.memory_Bps / _evenness(name, part)
    memory += (
        sum(sizes[: 2 if "backward" in name else 1])
        * (TWICE.get(name, 0) / (2 if "backward" in name else 1))
        / part.cache_Bps
    )
    if name in ROWS:
        memory = max(memory, math.prod(kernel.ins[0][0][:-1]) * ROW_S / part.num_sms)
    if name in GRADIENT_OF_SCALE and _asked(kernel, 1):
        memory += sum(sizes[:2]) / (0.75 * OVER_ROWS * part.memory_Bps)
    elif "batch_norm" in name and len(kernel.ins[0][0]) > 2 and (_by_cudnn(kernel) or not _innermost_channels(kernel)):
        return _batch_norm_s(kernel, name, sizes[0], part)
    elif name == "sum" and _over_rows(kernel):
        memory = memory / OVER_ROWS + REDUCED_S + _joined_s(kernel, part)
    elif name == "sum" and kernel.outs:
        rows = min(math.prod(kernel.outs[0][0]), math.prod(kernel.ins[0][0]) / WARP)
        memory = max(memory, rows * SUMMED_ROW_S / part.num_sms)
    elif name in SCATTERED and "index" in name and True in kernel.args:
        memory = _scattered_s(kernel, name, part, widths)
    elif name in SCATTERED and "index" not in name:
        memory += _scattered_s(kernel, name, part, widths)
    elif name in ("sort", "argsort", "topk"):
        memory += SORT_S + 16 * sum(sizes) / part.memory_Bps
    elif name.startswith("_fft"):  # a kernel for each dimension
        memory *= next((len(a) for a in kernel.args if isinstance(a, list)), 1)
    elif name == "upsample_bilinear2d" and not _innermost_channels(kernel):
        *planes, height, width = kernel.outs[0][0]
        memory = max(memory, math.prod(planes) * PLANE_S * (height * width / PIXELS) ** WAITING)
    turned_s = TURNED * _turned(kernel, name) / part.issues_per_s
    return max(memory, _issues(kernel, name) / part.issues_per_s) + turned_s


def _by_cudnn(kernel: KernelCall) -> bool:
    """Whether cuDNN normalises a batch: images in types that it takes."""
    return kernel.ins[0][1] != "bfloat16"


def _innermost_channels(kernel: KernelCall) -> bool:
    first = kernel.args[0] if kernel.args and isinstance(kernel.args[0], dict) else {}
    return bool(first) and first["stride"][1] == 1 and first["shape"][1] > 1


def _batch_norm_s(kernel: KernelCall, name: str, size_bytes: float, part: GpuFigures) -> float:
    """Return what a batch normalisation takes: passes over memory, or one block for each channel.

    With channels innermost cuDNN has blocks enough.
    """
    shape, backward = kernel.ins[0][0], "backward" in name
    memory = size_bytes * (5 if backward else 3) / (NORMALISED * part.memory_Bps)
    if _innermost_channels(kernel):
        return memory
    turns = max(1.0, shape[1] / (2 * part.num_sms))
    block = (CHANNEL_PER_S if _by_cudnn(kernel) else OWN_CHANNEL_PER_S)[backward]
    return max(memory, math.prod(shape) / shape[1] * turns / block)


def _scattered_s(kernel: KernelCall, name: str, part: GpuFigures, widths: dict[str, int]) -> float:
    """Return what it takes to sort rows by where they are added, and to add them."""
    given = [(math.prod(shape), t) for shape, t, _ in kernel.ins]
    keys = max((n for n, t in given if t in ("int64", "int32")), default=0)
    table = 1 if "index" in name else 0  # the first is what is written to
    values, dtype = max([(n, t) for n, t in given if t.startswith(("float", "bfloat"))][table:], default=(0, "float32"))
    sorting = SORT_S + keys * KEY_S
    if "index" in name:
        alike = keys * _slice(kernel) / math.prod(kernel.ins[0][0])  # rows that are added to one, one after the other
        rows_s = max(values / _slice(kernel) * SLICE_S / part.num_sms, alike * ALIKE_S)
        return sorting + max(values * max(widths.get(dtype, 4), 4) / (SORTED * part.memory_Bps), rows_s)
    return 2 * sorting + values * EMBEDDED / part.issues_per_s


def _slice(kernel: KernelCall) -> int:
    """Return the elements side by side that one place of an index stands for: those behind its last dimension."""
    indices = kernel.args[1] if len(kernel.args) > 1 and isinstance(kernel.args[1], list) else [True]
    last = max((place for place, index in enumerate(indices) if index is not None), default=0)
    return max(math.prod(kernel.ins[0][0][last + 1 :]), 1)


def _joined_s(kernel: KernelCall, part: GpuFigures) -> float:
    """Return what it takes to join the sums of the blocks that share the columns of a reduction over rows."""
    columns = math.prod(kernel.outs[0][0]) if kernel.outs else 1
    rows = math.prod(kernel.ins[0][0]) / max(columns, 1)
    shared = min(4 * part.num_sms / math.ceil(columns / COLUMNS), rows / BLOCK_ROWS)
    return JOIN_S * max(shared - FEW_BLOCKS, 0.0) * min(columns / COLUMNS, 1.0)


def _asked(kernel: KernelCall, number: int) -> bool:
    """Whether a backward is asked for the gradient of its input, its scale or its shift: the last of its arguments."""
    mask = kernel.args[-1] if kernel.args else None
    return not isinstance(mask, list) or len(mask) <= number or bool(mask[number])


def _turned(kernel: KernelCall, name: str) -> int:
    """Return the elements that a normalisation of rows copies first, where its rows do not lie side by side."""
    if name not in ROWS:
        return 0
    given = [a for a in kernel.args[: ROWS[name]] if isinstance(a, dict) and len(a.get("shape", ())) > 1]
    return sum(math.prod(a["shape"]) for a in given if not _rowwise(a))


def _issues(kernel: KernelCall, name: str) -> float:
    """Return the lanes' issues of a kernel."""
    if name in POOLED:
        result, back = math.prod(kernel.outs[0][0]), math.prod(kernel.ins[0][0])
        window = next(
            (a for a in kernel.args if isinstance(a, list) and a and all(isinstance(n, int) for n in a)), [3, 3]
        )
        taps = math.prod(n for n in window if isinstance(n, int))
        element, tap = POOLED[name]
        return element * result + tap * taps * (back if "backward" in name else result)
    if name in ("upsample_bilinear2d_backward", "upsample_bicubic2d_backward", "upsample_trilinear3d_backward"):
        given = math.prod(kernel.ins[0][0])
        return UPSAMPLED * given * given / math.prod(kernel.outs[0][0])
    if name == "grid_sampler_2d_backward":
        return SAMPLED * math.prod(kernel.ins[0][0]) / math.sqrt(math.sqrt(math.prod(kernel.ins[1][0][2:])))
    if name == "upsample_bilinear2d":
        return INTERPOLATED * math.prod(kernel.outs[0][0]) if _innermost_channels(kernel) else 0
    lists = kernel.args and isinstance(kernel.args[0], list)
    whole = [math.prod(shape) for shape, _, _ in (*kernel.ins, *kernel.outs)]
    if lists:
        first = kernel.args[0]
        elements = sum(whole[: len(first) if isinstance(first, list) else 1])
    else:
        elements = max(whole, default=0)
    return elements * max(ISSUES.get(name, 0), _laid(kernel, name))


def _laid(kernel: KernelCall, name: str) -> int:
    """Return the issues for an element of a pointwise operator whose operands are not alike in place or type."""
    if name.rstrip("_") not in POINTWISE:
        return 0
    given = (
        kernel.args[0] if name in ("cat", "stack") and kernel.args and isinstance(kernel.args[0], list) else kernel.args
    )
    tensors = [a for a in given if isinstance(a, dict) and a.get("shape") and math.prod(a["shape"]) > 1]
    if not tensors:
        return 0
    wide = max(tensors, key=lambda tensor: math.prod(tensor["shape"]))
    whole = [t for t in tensors if t["shape"] == wide["shape"] or name in ("cat", "stack")]
    rowwise = "contiguous_format" in str(kernel.kwargs.get("memory_format", "")) or name in ("cat", "stack")
    inner = {_innermost(tensor) for tensor in whole} | ({len(wide["shape"]) - 1} if rowwise else set())
    if len(inner) > 1:
        return TURNED
    strides = {tuple(tensor["stride"]) for tensor in whole}
    plain = len(whole) == len(tensors) and all(_dense(tensor) for tensor in whole)
    if not plain or (name not in ("cat", "stack") and len(strides) > 1) or (rowwise and not all(map(_rowwise, whole))):
        return STRIDED
    types = {tensor["dtype"] for tensor in tensors}
    narrow = kernel.ins[-1][1] in ("bfloat16", "float16") and bool(kernel.outs) and kernel.outs[0][1] == "float32"
    return MIXED if len(types) > 1 or (name in ("_to_copy", "copy_") and narrow) else 0


def _innermost(tensor: dict[str, list[int]]) -> int:
    """Return the dimension whose elements lie side by side."""
    sides = [(stride, -size, place) for place, (stride, size) in enumerate(_sides(tensor)) if size > 1 and stride]
    return min(sides)[2] if sides else len(tensor["shape"]) - 1


def _sides(tensor: dict[str, list[int]]) -> list[tuple[int, int]]:
    return list(zip(tensor["stride"], tensor["shape"], strict=True))


def _rowwise(tensor: dict[str, list[int]]) -> bool:
    """Whether a tensor lies in the order of its dimensions, without gaps."""
    return _gapless(reversed(_sides(tensor)))


def _dense(tensor: dict[str, list[int]]) -> bool:
    """Whether the elements of a tensor lie without gaps, in whichever order of its dimensions."""
    return _gapless(sorted(_sides(tensor)))


def _gapless(sides: Iterable[tuple[int, int]]) -> bool:
    """Whether each dimension, from the innermost on, steps over exactly what is inside it."""
    step = 1
    for stride, size in sides:
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _over_rows(kernel: KernelCall) -> bool:
    """Whether a sum leaves the last dimension as it is."""
    over = kernel.args[1] if len(kernel.args) > 1 else None
    last = len(kernel.ins[0][0]) - 1
    return isinstance(over, list) and bool(over) and not {last, -1} & {n for n in over if isinstance(n, int)}


def _evenness(name: str, part: GpuFigures) -> float:
    """Return how evenly the chunks of lists of tensors fall on multiprocessors: 320 on 132 are 2.4 of 3."""
    if not name.startswith(("_foreach", "_fused_adam", "_fused_sgd", "chunk_cat")):
        return 1.0
    return CHUNKS / (math.ceil(CHUNKS / part.num_sms) * part.num_sms)
