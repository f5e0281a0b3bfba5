"""What a layer with experts is made of, timed on one GPU: `python research/experts/kernels.py OUT.json [SECONDS]`.

Grouped products in bf16 and fp8, the same work as one dense product, the router, permutation and its way back, casts
and their scales, activation, and the copies of dispatch and combine, at the shapes of models in use and several numbers
of tokens. Needs torch with CUDA (Triton for what is compiled), nothing of syncline. Some four minutes; OUT.json is
written anew after every kernel, so that what was timed is kept when time runs out.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

Tensor = torch.Tensor
BEGUN = time.monotonic()
DEVICE = "cuda"
#: hidden, width of an expert, experts of the model, experts a token visits
MODELS = {
    "qwen3-30b-a3b": (2048, 768, 128, 8),
    "qwen3-235b-a22b": (4096, 1536, 128, 8),
    "deepseek-v3": (7168, 2048, 256, 8),
    "mixtral-8x7b": (4096, 14336, 8, 2),
    "gpt-oss-120b": (2880, 2880, 128, 4),
}
#: Experts that one rank holds, and the tokens of a micro-batch on it.
HELD = (4, 16, 32)
TOKENS = (4096, 16384)
FLUSH_BYTES = 256 * 2**20
FP8 = torch.float8_e4m3fn
FP8_MOST = 448.0


@dataclass(frozen=True)
class Timing:
    """One kernel at one shape: seconds on the GPU, and on the host until it was launched."""

    kernel: str
    model: str
    held: int
    tokens: int
    rows: int  # tokens times experts that each visits, on this rank
    gpu_s: float
    host_s: float
    flops: float
    bytes: float
    error: str = ""


def timed(work: Callable[[], object], runs: int = 9) -> tuple[float, float]:
    """Return the medians of GPU and host seconds of a kernel whose inputs are not in the cache."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=DEVICE)
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    gpu, host = [], []
    for _ in range(runs):
        flush.zero_()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        begun = time.perf_counter()
        work()
        host.append(time.perf_counter() - begun)
        last.record()
        torch.cuda.synchronize()
        gpu.append(first.elapsed_time(last) / 1e3)
    return statistics.median(gpu), statistics.median(host)


def ends_of(rows: int, held: int) -> Tensor:
    """Return where each expert's tokens end: even, in multiples of 16 as grouped products ask for."""
    each = max(rows // held // 16 * 16, 16)
    return torch.arange(1, held + 1, device=DEVICE, dtype=torch.int32) * each


def swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def rowwise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cast with a scale for each row."""
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / FP8_MOST
    return (x / scale).to(FP8), scale


def blockwise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cast with a scale for each 128 elements of a row, as DeepSeek-V3 does."""
    blocks = x.view(x.shape[0], -1, 128)
    scale = blocks.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / FP8_MOST
    return (blocks / scale).to(FP8).view_as(x), scale.squeeze(-1)


def tensorwise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cast with one scale."""
    scale = x.abs().amax().float().clamp(min=1e-12) / FP8_MOST
    return (x / scale).to(FP8), scale


Kernel = tuple[str, Callable[[], object], float, float]  # name, work, FLOPs, bytes that must move


def kernels(hidden: int, width: int, experts: int, top_k: int, held: int, tokens: int) -> Iterator[Kernel]:
    """Yield the kernels of a layer at one shape."""
    make = lambda *shape: torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * 0.05  # noqa: E731
    rows = tokens * top_k // held // 16 * 16 * held
    ends, each = ends_of(rows, held), rows // held
    x, inner = make(rows, hidden), make(rows, width)
    up, down = make(held, hidden, 2 * width), make(held, width, hidden)
    wide = make(rows, 2 * width)
    work_up, work_down = 2.0 * rows * hidden * 2 * width, 2.0 * rows * width * hidden
    weights_up, weights_down = 4.0 * held * hidden * width, 2.0 * held * hidden * width
    grouped = torch._grouped_mm
    moved_up, moved_down = 2.0 * rows * (hidden + 2 * width), 2.0 * rows * (hidden + width)
    yield "grouped up bf16", lambda: grouped(x, up, offs=ends), work_up, moved_up + weights_up
    yield "grouped down bf16", lambda: grouped(inner, down, offs=ends), work_down, moved_down + weights_down
    yield "grouped up dgrad bf16", lambda: grouped(wide, up.transpose(-2, -1), offs=ends), work_up, weights_up
    yield "grouped up wgrad bf16", lambda: grouped(x.t(), wide, offs=ends), work_up, weights_up
    yield "grouped down wgrad bf16", lambda: grouped(inner.t(), x, offs=ends), work_down, weights_down
    yield "dense up bf16", lambda: x @ up[0], work_up, 2.0 * rows * (hidden + 2 * width)
    yield "one by one up bf16", lambda: [x[i * each : (i + 1) * each] @ up[i] for i in range(held)], work_up, weights_up
    x8, x_scale = rowwise(x)
    up8, up_scale = rowwise(up.transpose(-2, -1).reshape(held * 2 * width, hidden))
    up8, up_scale = up8.view(held, 2 * width, hidden).transpose(-2, -1), up_scale.view(held, 2 * width)
    scaled = lambda: torch._scaled_grouped_mm(  # noqa: E731
        x8, up8, x_scale.view(-1), up_scale, offs=ends, out_dtype=torch.bfloat16
    )
    yield "grouped up fp8 rowwise", scaled, work_up, weights_up / 2
    if held != HELD[0]:  # what follows depends on rows alone; compiling takes seconds
        return
    for name, cast in (("tensorwise", tensorwise), ("rowwise", rowwise), ("blockwise", blockwise)):
        if hidden % 128 == 0:
            yield f"cast {name} eager", partial(cast, x), 0.0, 3.0 * x.numel()
            compiled = torch.compile(cast, dynamic=False)
            yield f"cast {name} compiled", partial(compiled, x), 0.0, 3.0 * x.numel()
    yield "activation eager", lambda: swiglu(wide), 0.0, 6.0 * inner.numel()
    fused = torch.compile(swiglu, dynamic=False)
    yield "activation compiled", lambda: fused(wide), 0.0, 6.0 * inner.numel()
    yield from routing(hidden, experts, top_k, tokens)


def routing(hidden: int, experts: int, top_k: int, tokens: int) -> Iterator[Kernel]:
    """Yield the router, the permutation of tokens and its way back."""
    own = torch.randn(tokens, hidden, device=DEVICE, dtype=torch.bfloat16)
    gate = torch.randn(hidden, experts, device=DEVICE, dtype=torch.bfloat16) * 0.02
    gate32 = gate.float()

    def scores() -> tuple[Tensor, Tensor]:
        values, chosen = torch.topk(torch.softmax((own @ gate).float(), dim=-1), top_k, dim=-1)
        return values / values.sum(dim=-1, keepdim=True), chosen

    weights, chosen = scores()
    order = torch.argsort(chosen.view(-1), stable=True)
    source = order // top_k
    routed = own[source]
    pushed = torch.zeros_like(own)
    moved = 4.0 * tokens * top_k * hidden
    yield "router product bf16", lambda: own @ gate, 2.0 * tokens * hidden * experts, 2.0 * own.numel()
    yield "router product fp32", lambda: own.float() @ gate32, 2.0 * tokens * hidden * experts, 10.0 * own.numel()
    yield "router whole", scores, 2.0 * tokens * hidden * experts, 2.0 * own.numel()
    yield "router counts", lambda: torch.bincount(chosen.view(-1), minlength=experts), 0.0, 8.0 * chosen.numel()
    yield "router histogram", lambda: torch.histc(chosen.float(), experts, 0, experts), 0.0, 8.0 * chosen.numel()
    yield "router order", lambda: torch.argsort(chosen.view(-1), stable=True), 0.0, 16.0 * chosen.numel()
    yield "counts to host", lambda: torch.bincount(chosen.view(-1), minlength=experts).tolist(), 0.0, 8.0 * experts
    yield "permute", lambda: own[source], 0.0, moved
    scale = weights.view(-1)[order].unsqueeze(-1)

    def weighed() -> Tensor:
        return (routed.float() * scale).to(torch.bfloat16)

    yield "weigh eager", weighed, 0.0, moved
    fused = torch.compile(weighed, dynamic=False)
    yield "weigh compiled", fused, 0.0, moved
    index = source.unsqueeze(-1).expand(-1, hidden)
    yield "unpermute scatter_add", lambda: pushed.zero_().scatter_add_(0, index, routed), 0.0, moved
    yield "unpermute index_add", lambda: pushed.zero_().index_add_(0, source, routed), 0.0, moved
    back = torch.argsort(order)
    yield "unpermute gather and sum", lambda: routed[back].view(tokens, top_k, hidden).sum(dim=1), 0.0, 2 * moved
    landing = torch.empty_like(routed)
    yield "dispatch buffer copy", lambda: landing.copy_(routed), 0.0, moved
    yield "combine buffer copy", lambda: routed.copy_(landing), 0.0, moved
    padded = torch.zeros(routed.shape[0] + 16 * experts, hidden, device=DEVICE, dtype=torch.bfloat16)
    yield "pad to 16", lambda: padded[: routed.shape[0]].copy_(routed), 0.0, moved


def main() -> None:
    """Time every kernel at every shape while there is time, the models in turn."""
    target = Path(sys.argv[1])
    most_s = float(sys.argv[2]) if len(sys.argv) > 2 else 240.0
    found: list[Timing] = []
    head = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    shapes = [(model, held, tokens) for tokens in TOKENS for held in HELD for model in MODELS]
    for model, held, tokens in shapes:
        hidden, width, experts, top_k = MODELS[model]
        if held > experts or time.monotonic() - BEGUN > most_s:
            continue
        torch._dynamo.reset()
        made = kernels(hidden, width, experts, top_k, held, tokens)
        while time.monotonic() - BEGUN < most_s:
            try:
                name, work, flops, moved = next(made)
            except StopIteration:
                break
            except Exception as error:  # the inputs of a kernel that this torch does not have
                found.append(Timing("inputs", model, held, tokens, 0, 0.0, 0.0, 0.0, 0.0, str(error)[:200]))
                break
            try:
                gpu_s, host_s = timed(work)
                found.append(Timing(name, model, held, tokens, tokens * top_k, gpu_s, host_s, flops, moved))
            except Exception as error:  # a kernel that this torch or part does not have
                said = str(error)[:200]
                found.append(Timing(name, model, held, tokens, tokens * top_k, 0.0, 0.0, flops, moved, said))
        torch.cuda.empty_cache()
        target.write_text(json.dumps({**head, "timings": [asdict(one) for one in found]}, indent=1))
        print(f"{time.monotonic() - BEGUN:.0f} s: {model}, {held} experts, {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
