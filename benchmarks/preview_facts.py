"""What kinds of kernels take on a GPU, for the kernel model: `python benchmarks/preview_facts.py OUT`.

Two parts. Products that fill a share of the time, the rest being copies: the clock and the rate that the power limit
leaves. And kernels that are not bound by memory alone (normalisations, pools, reductions over columns, optimizers over
lists, index and sort, narrow and strided convolutions), each at two sizes. Needs torch with CUDA and nothing else.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as fn

METER = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "--loop-ms=20"]
BF16, FP32 = torch.bfloat16, torch.float32


def shared(share: float, scale: float, lasting_s: float = 1.2) -> dict[str, Any]:
    """Return the rate of products that fill a share of the time; `scale` of 0 makes their operands zeros."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=BF16) * scale for _ in range(2))
    block, into = torch.randn(2, 1 << 28, device="cuda", dtype=BF16)
    copies = round((1 - share) / share * 1.5e-3 / 250e-6)
    pairs = []
    meter = subprocess.Popen(METER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    begun = time.perf_counter()
    while time.perf_counter() - begun < lasting_s:
        pairs = pairs[-40:]
        for _ in range(10):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            a @ b
            marks[1].record()
            for _ in range(copies):
                into.copy_(block)
            marks[2].record()
            pairs.append(marks)
        torch.cuda.synchronize()
    meter.terminate()
    read = [line.split(",") for line in meter.communicate()[0].splitlines() if line.count(",") == 1]
    product = sum(m[0].elapsed_time(m[1]) for m in pairs) / len(pairs) / 1e3
    other = sum(m[1].elapsed_time(m[2]) for m in pairs) / len(pairs) / 1e3
    return {
        "share": product / (product + other),
        "scale": scale,
        "product_s": product,
        "flops": 2 * 8192**3,
        "copy_Bps": 2 * 2 * (1 << 28) * copies / other if copies else None,
        "clock_MHz_and_W": read[len(read) // 2 :][:12],
    }


def timed(call: Callable[[], object]) -> float:
    """Return seconds of a call on the GPU, launched behind a sleeping kernel."""
    for _ in range(3):
        call()
    spent = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(6_000_000)
        begin.record()
        for _ in range(8):
            call()
        end.record()
        end.synchronize()
        spent.append(begin.elapsed_time(end) / 8e3)
    return sorted(spent)[1]


def rand(*shape: int, dtype: torch.dtype = BF16, last: bool = False) -> torch.Tensor:
    """Return a tensor of random numbers, channels last where asked."""
    made = torch.randn(*shape, device="cuda", dtype=dtype)
    return made.to(memory_format=torch.channels_last) if last else made


def cases() -> dict[str, Callable[[], object]]:
    """Return calls by name."""
    found: dict[str, Callable[[], object]] = {}
    aten = torch.ops.aten
    for size in (1 << 24, 1 << 27):
        for dtype in (BF16, FP32):
            x, y = rand(size, dtype=dtype), rand(size, dtype=dtype)
            tag = f"{size} {dtype}"
            found |= {
                f"gelu {tag}": lambda x=x: fn.gelu(x),
                f"gelu tanh {tag}": lambda x=x: fn.gelu(x, approximate="tanh"),
                f"gelu_backward {tag}": lambda x=x, y=y: aten.gelu_backward(x, y),
                f"silu {tag}": lambda x=x: fn.silu(x),
                f"sqrt {tag}": lambda x=x: x.sqrt(),
                f"div {tag}": lambda x=x: x / 3.0,
                f"mul {tag}": lambda x=x, y=y: x * y,
                f"dropout {tag}": lambda x=x: aten.native_dropout(x, 0.1, True),
                f"exp {tag}": lambda x=x: x.exp(),
                f"randn {tag}": lambda size=size, dtype=dtype: torch.randn(size, device="cuda", dtype=dtype),
                f"sum all {tag}": lambda x=x: x.sum(),
                f"cast {tag}": lambda x=x: x.to(FP32 if x.dtype is BF16 else BF16),
                f"foreach_sqrt {tag}": lambda x=x: torch._foreach_sqrt([x]),
                f"foreach_mul {tag}": lambda x=x: torch._foreach_mul_([x], 1.0),
                f"foreach_norm {tag}": lambda x=x: torch._foreach_norm([x]),
            }
        for rows, wide in ((size // 1024, 1024), (size // 8192, 8192)):
            z = rand(rows, wide)
            row, one = rand(rows, 1), rand(wide)
            f = z.float()
            tag = f"{rows}x{wide}"
            norm = aten.native_layer_norm(z, [wide], one, one, 1e-5)
            found |= {
                f"sum rows {tag}": lambda z=z: z.sum(0),
                f"sum columns {tag}": lambda z=z: z.sum(1),
                f"mul row {tag}": lambda z=z, row=row: z * row,
                f"mul column {tag}": lambda z=z, one=one: z * one,
                f"transpose {tag}": lambda z=z: z.t().contiguous(),
                f"layer_norm {tag}": lambda z=z, one=one, wide=wide: fn.layer_norm(z, (wide,), one, one),
                f"layer_norm_backward {tag}": lambda z=z, n=norm, one=one, wide=wide: aten.native_layer_norm_backward(
                    z, z, [wide], n[1], n[2], one, one, [True, True, True]
                ),
                f"softmax {tag}": lambda f=f: fn.log_softmax(f, 1),
                f"softmax_backward {tag}": lambda f=f: aten._log_softmax_backward_data(f, f, 1, FP32),
                f"sort {tag}": lambda z=z: z.float().sort(dim=1),
                f"topk {tag}": lambda z=z: z.topk(2, dim=1),
                f"cumsum {tag}": lambda z=z: z.cumsum(0),
            }
    for images, channels, side in ((64, 64, 112), (64, 256, 56), (64, 512, 14)):
        for last in (False, True):
            x = rand(images, channels, side, side, last=last)
            one, tag = rand(channels, dtype=FP32), f"{images}x{channels}x{side} {'last' if last else 'first'}"
            kept = aten.native_batch_norm(x, one, one, one.clone(), one.abs(), True, 0.1, 1e-5)
            half = one.to(BF16)
            grouped = aten.native_group_norm(x, half, half, images, channels, side * side, 32, 1e-5)
            pooled = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
            found |= {
                f"batch_norm {tag}": lambda x=x, one=one: aten.native_batch_norm(
                    x, one, one, one.clone(), one.abs(), True, 0.1, 1e-5
                ),
                f"batch_norm_backward {tag}": lambda x=x, one=one, k=kept: aten.native_batch_norm_backward(
                    x, x, one, one, one, k[1], k[2], True, 1e-5, [True, True, True]
                ),
                f"group_norm {tag}": lambda x=x, h=half: fn.group_norm(x, 32, h, h),
                f"group_norm_backward {tag}": lambda x=x, h=half, g=grouped, s=(images, channels, side * side): (
                    aten.native_group_norm_backward(x, x, g[1], g[2], h, *s, 32, [True, True, True])
                ),
                f"max_pool {tag}": lambda x=x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
                f"max_pool_backward {tag}": lambda x=x, p=pooled: aten.max_pool2d_with_indices_backward(
                    p[0], x, [3, 3], [2, 2], [1, 1], [1, 1], False, p[1]
                ),
                f"avg_pool {tag}": lambda x=x: fn.avg_pool2d(x, 2),
                f"upsample {tag}": lambda x=x: fn.interpolate(x, scale_factor=2.0),
                f"upsample_backward {tag}": lambda x=x, s=side: aten.upsample_nearest2d_backward(
                    x, [s, s], [x.shape[0], x.shape[1], s // 2, s // 2], 2.0, 2.0
                ),
            }
            for out, taps, stride, groups in (
                (channels, 3, 1, 1),
                (2 * channels, 1, 1, 1),
                (channels, 3, 2, 1),
                (channels, 3, 1, channels),
            ):
                w = rand(out, channels // groups, taps, taps, last=last and groups == 1)
                args = ([stride, stride], [taps // 2, taps // 2], [1, 1], False, [0, 0], groups)
                y = aten.convolution(x, w, None, *args)
                name = f"{tag} to {out} taps {taps} stride {stride} groups {groups}"
                found[f"conv {name}"] = lambda x=x, w=w, a=args: aten.convolution(x, w, None, *a)
                for what, mask in (("input", [True, False, False]), ("weight", [False, True, False])):
                    found[f"conv {what} {name}"] = lambda x=x, w=w, y=y, a=args, m=mask: aten.convolution_backward(
                        y, x, w, None, *a, m
                    )
    for batch, heads, length, size in ((16, 12, 1024, 64), (128, 12, 197, 64), (1, 32, 4096, 128), (4, 16, 2048, 128)):
        q = rand(batch, heads, length, size).requires_grad_()
        for causal in (False, True):
            name = f"attention {batch}x{heads}x{length}x{size} causal {causal}"
            found[name] = lambda q=q, c=causal: fn.scaled_dot_product_attention(q, q, q, is_causal=c)
            out = fn.scaled_dot_product_attention(q, q, q, is_causal=causal)
            found[f"{name} both"] = lambda q=q, c=causal: torch.autograd.grad(
                fn.scaled_dot_product_attention(q, q, q, is_causal=c), q, q
            )
            del out
    for tokens, words, wide in ((4096, 32000, 4096), (16384, 50304, 768)):
        g, at = rand(tokens, wide), torch.randint(0, words, (tokens,), device="cuda")
        found[f"embedding_backward {tokens} {words} {wide}"] = lambda g=g, at=at, n=words: (
            aten.embedding_dense_backward(g, at, n, -1, False)
        )
        found[f"index_put {tokens} {wide}"] = lambda g=g, at=at: g.clone().index_put_(
            (at % len(g),), g, accumulate=True
        )
    for m, n, k in (
        (4096, 4096, 4096),
        (16384, 768, 3072),
        (16384, 3072, 768),
        (16384, 2304, 768),
        (16384, 50304, 768),
        (25216, 768, 3072),
        (25216, 3072, 768),
        (768, 3072, 25216),
        (768, 50304, 16384),
        (8192, 8192, 1024),
        (512, 512, 512),
        (2048, 2048, 2048),
        (4096, 4096, 256),
        (25216, 2304, 768),
    ):
        a, b = rand(m, k), rand(k, n)
        found[f"product {m} {n} {k}"] = lambda a=a, b=b: a @ b
    return found


def main() -> None:
    """Print nothing and write a JSON file."""
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    result["shares"] = [shared(share, scale) for scale in (1.0, 0.0) for share in (1.0, 0.7, 0.45, 0.2)]
    rows: dict[str, Any] = {}
    torch.cuda.empty_cache()
    for name, call in cases().items():
        try:
            rows[name] = timed(call)
        except Exception as error:
            rows[name] = str(error)[:120]
    result["kernels"] = rows
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
