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
    "_foreach_sqrt": 68, "_foreach_div_": 97, "_foreach_mul_": 50, "_foreach_add_": 50, "_foreach_lerp_": 61,
    "_foreach_addcdiv_": 76, "_foreach_addcmul_": 74,
    "native_batch_norm": 184, "cudnn_batch_norm": 184,
    "native_batch_norm_backward": 143, "cudnn_batch_norm_backward": 143,
    "batch_norm_stats": 116, "batch_norm_elemt": 68, "batch_norm_backward_reduce": 60, "batch_norm_backward_elemt": 83,
    "native_group_norm": 184, "native_group_norm_backward": 203, "_fused_adam_": 340, "_fused_adamw_": 340,
}  # fmt: skip
"""Lanes' issues for an element of the largest tensor. Group normalisation is taken as two of its parts: sums, then a
pass whose scale and shift are looked up for each element."""
STRIDED, MIXED, TURNED = 100, 108, 285
"""For an element of pointwise operators: an index that is worked out dimension by dimension; operands of two types, or
a cast to a wider one; an operand whose innermost dimension is another's, of which a whole sector is read each time."""
POOLED = {"max_pool2d_with_indices": 60, "max_pool2d_with_indices_backward": 132}  # for an output and each of its taps
TWICE = {  # inputs that are read again, from the cache: sums must be known before the first element is written
    "native_layer_norm": 1, "_fused_rms_norm": 1, "native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2,
    "_softmax": 2, "_log_softmax": 2, "_softmax_backward_data": 2, "_log_softmax_backward_data": 2,
}  # fmt: skip
ROWS = {"native_layer_norm": 1, "_fused_rms_norm": 1, "native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2}
"""Kernels that want the rows of so many of their arguments side by side."""
GRADIENT_OF_SCALE = ("native_layer_norm_backward", "_fused_rms_norm_backward")
OVER_ROWS = 0.45  # of the memory rate that a reduction over rows reaches: a block for 32 columns
SCATTERED = {"embedding_dense_backward": 0.033, "index_put": 0.2, "index_put_": 0.2, "_unsafe_index_put": 0.2}
"""Of it that rows reach which are added where an index says: threads walk them one after another."""
SORT_S = 80e-6  # the passes of a radix sort of few elements
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
    if name in GRADIENT_OF_SCALE and _asked(kernel, 1):
        memory += sum(sizes[:2]) / (OVER_ROWS * part.memory_Bps)
    elif name == "sum" and _over_rows(kernel):
        memory /= OVER_ROWS
    elif name in SCATTERED and ("index" not in name or True in kernel.args):
        values = max((n * widths.get(t, 1) for _, t, n in kernel.ins if t.startswith(("float", "bfloat"))), default=0)
        memory += SORT_S + values / (SCATTERED[name] * part.memory_Bps)
    elif name in ("sort", "argsort", "topk"):
        memory += SORT_S + 16 * sum(sizes) / part.memory_Bps
    turned_s = TURNED * _turned(kernel, name) / part.issues_per_s
    return max(memory, _issues(kernel, name) / part.issues_per_s) + turned_s


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
        outs = math.prod(kernel.ins[0][0] if "backward" in name else kernel.outs[0][0])
        window = next(
            (a for a in kernel.args if isinstance(a, list) and a and all(isinstance(n, int) for n in a)), [3, 3]
        )
        return POOLED[name] * outs * math.prod(n for n in window if isinstance(n, int))
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
