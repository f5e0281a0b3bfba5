"""What a GPU's host takes to launch single calls, and what some kernels take: `python research/preview/host.py OUT`.

Calls on small tensors, many in a row without a wait, so that the GPU never holds the host up: functions, modules,
views, casts, backwards, optimizers. Then grouped convolutions and attention in 32 bits by shape, layout and type, as
the GPU's own events time them. Without a GPU the host's part is taken on CPU tensors.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import platform
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    torch.set_num_threads(1)
CALLS, ROUNDS = 100, 7


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def host_us(fn, calls=CALLS):
    """Return the host's microseconds for a call, the median of some rounds."""
    found = []
    for _ in range(ROUNDS + 2):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            fn()
        found.append(time.perf_counter() - begin)
    return round(1e6 * sorted(found[2:])[ROUNDS // 2] / calls, 2)


def backward_us(make, calls=50):
    """Return the host's microseconds of a backward for each call in it."""
    found = []
    for _ in range(ROUNDS + 2):
        x = torch.randn(8, 64, device=DEVICE, requires_grad=True)
        y = x
        for _ in range(calls):
            y = make(y)
        end = y.sum()
        wait()
        begin = time.perf_counter()
        end.backward()
        found.append(time.perf_counter() - begin)
    return round(1e6 * sorted(found[2:])[ROUNDS // 2] / calls, 2)


def pieces():
    """Return what calls take the host."""
    x, w = (torch.randn(8, 64, device=DEVICE) for _ in range(2))
    square = torch.randn(64, 64, device=DEVICE)
    g, hook = x.clone().requires_grad_(), nn.Identity()
    linear, norm = nn.Linear(64, 64).to(DEVICE), nn.LayerNorm(64).to(DEVICE)
    conv, batch = nn.Conv2d(16, 16, 3, padding=1).to(DEVICE), nn.BatchNorm2d(16).to(DEVICE)
    image = torch.randn(2, 16, 8, 8, device=DEVICE)
    q = torch.randn(2, 4, 16, 16, device=DEVICE)
    table, rows = nn.Embedding(100, 64).to(DEVICE), torch.randint(0, 100, (8, 16), device=DEVICE)
    aim = torch.randint(0, 64, (8,), device=DEVICE)
    number = [0]

    def python():
        for each in range(100):
            number[0] = number[0] + each

    found = {"python of 100 additions": host_us(python)}
    with torch.no_grad():
        found["add without gradients"] = host_us(lambda: x + w)
        found["add in place without gradients"] = host_us(lambda: x.add_(w))
        found["view without gradients"] = host_us(lambda: x.view(64, 8))
        found["linear module without gradients"] = host_us(lambda: linear(x))
    found["add"] = host_us(lambda: g + w)
    found["multiply by a number"] = host_us(lambda: g * 2.0)
    found["view"] = host_us(lambda: g.view(64, 8))
    found["transpose"] = host_us(lambda: g.transpose(0, 1))
    found["slice"] = host_us(lambda: g[:, :32])
    found["cast"] = host_us(lambda: g.to(torch.bfloat16))
    found["cat"] = host_us(lambda: torch.cat([g, w], 1))
    found["softmax"] = host_us(lambda: g.softmax(-1))
    found["gelu"] = host_us(lambda: F.gelu(g))
    found["mean"] = host_us(lambda: g.mean())
    found["matmul"] = host_us(lambda: g @ square)
    found["einsum"] = host_us(lambda: torch.einsum("ab,bc->ac", g, square))
    found["module that does nothing"] = host_us(lambda: hook(x))
    found["linear function"] = host_us(lambda: F.linear(x, linear.weight, linear.bias))
    found["linear module"] = host_us(lambda: linear(x))
    found["layer norm module"] = host_us(lambda: norm(g))
    found["convolution module"] = host_us(lambda: conv(image))
    found["batch norm module"] = host_us(lambda: batch(image))
    found["embedding module"] = host_us(lambda: table(rows))
    found["attention"] = host_us(lambda: F.scaled_dot_product_attention(q, q, q))
    found["dropout"] = host_us(lambda: F.dropout(g, 0.1))
    found["cross entropy"] = host_us(lambda: F.cross_entropy(g, aim))
    found["index by a tensor"] = host_us(lambda: g[aim % 8])
    found["zeros"] = host_us(lambda: torch.zeros(8, 64, device=DEVICE))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found["linear module, autocast"] = host_us(lambda: linear(x))
        found["add, autocast"] = host_us(lambda: g + w)
        found["layer norm module, autocast"] = host_us(lambda: norm(g))
    if DEVICE == "cuda":
        single = torch.zeros(1, device=DEVICE)
        found["item"] = host_us(lambda: single.item())
    made = {"add": lambda y: y + w, "view": lambda y: y.view(8, 64), "linear": linear, "layer norm": norm,
            "gelu": F.gelu, "softmax": lambda y: y.softmax(-1),
            "slice and cat": lambda y: torch.cat([y[:, :32], y[:, 32:]], 1),
            "cast and back": lambda y: y.to(torch.bfloat16).float()}  # fmt: skip
    found |= {f"backward of {name}": backward_us(fn) for name, fn in made.items()}
    for count in (50, 400):
        weights = [torch.randn(8, 8, device=DEVICE, requires_grad=True) for _ in range(count)]
        for each in weights:
            each.grad = torch.ones_like(each)
        ways = {"AdamW": torch.optim.AdamW(weights, foreach=True),
                "AdamW fused": torch.optim.AdamW(weights, fused=True),
                "SGD with momentum": torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True),
                "AdamW one by one": torch.optim.AdamW(weights, foreach=False)}  # fmt: skip
        found |= {f"{name}, {count} tensors": host_us(each.step, 3) for name, each in ways.items()}
        found[f"clipping, {count} tensors"] = host_us(lambda w=weights: nn.utils.clip_grad_norm_(w, 1.0), 3)
    return found


def gpu_us(fn, calls=6):
    """Return the GPU's microseconds for a call."""
    fn()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(4):
        torch.cuda._sleep(400_000)  # the host is ahead when the first event is reached
        begin.record()
        for _ in range(calls):
            fn()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return round(1e3 * sorted(found)[1] / calls, 1)


CONVOLUTIONS = [
    (images, wide, groups, side, taps, stride)
    for images, wide, side in ((64, 256, 56), (64, 512, 28), (64, 1024, 14), (32, 1344, 14), (64, 2048, 7))
    for groups in (2, 4, 8, 16, 32, 64)
    for taps, stride in ((3, 1),)
    if wide % groups == 0
] + [(64, 512, 8, 56, 3, 2), (64, 1024, 16, 28, 3, 2), (64, 512, 4, 28, 1, 1), (1, 4096, 16, 32, 3, 1)]


LAID = ((torch.bfloat16, False), (torch.bfloat16, True), (torch.float16, True), (torch.float32, False))


def convolutions(ends):
    """Return what grouped convolutions take, forward and the two gradients."""
    rows = []
    for images, wide, groups, side, taps, stride in CONVOLUTIONS:
        for dtype, last in (
            (torch.bfloat16, False),
            (torch.bfloat16, True),
            (torch.float16, True),
            (torch.float32, False),
        ):
            if time.monotonic() > ends:
                return rows
            x = torch.randn(images, wide, side, side, device=DEVICE, dtype=dtype)
            w = torch.randn(wide, wide // groups, taps, taps, device=DEVICE, dtype=dtype)
            if last:
                x, w = (each.to(memory_format=torch.channels_last) for each in (x, w))
            pad = [taps // 2] * 2
            rest = ([stride] * 2, pad, [1, 1], False, [0, 0], groups)
            forward = lambda: torch.ops.aten.convolution(x, w, None, *rest)  # noqa: B023, E731
            y = torch.ones_like(forward())
            row = [images, wide, groups, side, taps, stride, str(dtype)[6:], last, gpu_us(forward)]
            back = lambda mask: torch.ops.aten.convolution_backward(y, x, w, None, *rest, mask)  # noqa: B023, E731
            row += [gpu_us(partial(back, [each, not each, False])) for each in (True, False)]
            rows.append(row)
    return rows


def attentions(ends):
    """Return what attention in 32 bits takes: forward, backward."""
    rows = []
    for batch, heads, length, head in (
        (4, 8, 256, 32), (4, 8, 1024, 32), (8, 12, 512, 64), (8, 12, 1024, 64), (2, 16, 2048, 64), (4, 16, 1024, 128),
        (64, 8, 64, 64), (256, 4, 49, 32), (16, 12, 197, 64), (2, 8, 4096, 64), (8, 16, 128, 64), (4, 4, 1024, 16),
    ):  # fmt: skip
        for causal in (False, True):
            for tf32 in (False, True):
                if time.monotonic() > ends:
                    return rows
                torch.backends.cuda.matmul.allow_tf32 = tf32
                q, k, v = (torch.randn(batch, heads, length, head, device=DEVICE, requires_grad=True) for _ in range(3))
                fn = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: B023, E731
                y = fn()
                back = lambda: torch.autograd.grad(y, (q, k, v), y, retain_graph=True)  # noqa: B023, E731
                rows.append([batch, heads, length, head, causal, tf32, gpu_us(fn), gpu_us(back)])
    return rows


def main():
    """Write what was timed."""
    out, ends = Path(sys.argv[1]), time.monotonic() + 45
    found = {"processor": platform.processor(), "torch": torch.__version__, "host_us": pieces()}
    out.write_text(json.dumps(found))
    if DEVICE == "cuda":
        found["attention_us"] = attentions(ends)
        out.write_text(json.dumps(found))
        found["convolution_us"] = convolutions(ends)
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
