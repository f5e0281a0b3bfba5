"""The shape of a captured model, read from its parameters and its attention; else a list of its layers."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.previewing.axes import ScriptSplit
from syncline.previewing.price import useful_flops
from syncline.previewing.record import Capture, KernelCall
from syncline.workload.shape import Shape

_LAYER = re.compile(r"^(.*?)\.?(\d+)\.(.+)$")
_EXPERT = re.compile(r"(^|\.)(experts?)\.(\d+)\.")
FAR = 0.01  # of the parameters that the shape may not explain
Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Attention:
    """What attention was asked for: sequences, heads, keys' heads, tokens and size of a head on one rank."""

    batch: int
    heads: int
    kv_heads: int
    tokens: int
    head_size: int
    causal: bool
    calls: int  # in the forward of a step


def step_kernels(capture: Capture, phase: str = "") -> list[tuple[KernelCall, str]]:
    """Return the kernels of the last step, or of one phase of it, with their modules."""
    first, last = capture.steady[-1]
    ops = [op for op in capture.ops[first:last] if op.kind == "kernel" and phase in ("", op.phase)]
    return [(capture.kernels[op.signature], capture.words[op.module]) for op in ops]


def attention_of(capture: Capture) -> Attention | None:
    """Return the attention of a captured step: a fused kernel's, or the softmax of one that is written out."""
    ahead = [kernel for kernel, _ in step_kernels(capture, "forward")]
    fused = [k for k in ahead if "attention" in k.name and len(k.ins) > 2 and len(k.ins[0][0]) == 4]
    if fused:
        (b, h, s, d), (_, kv, _, _) = fused[0].ins[0][0], fused[0].ins[1][0]
        causal = any(arg is True for arg in fused[0].args[3:])
        return Attention(b, h, kv, s, d, causal, len(fused))
    soft = [k for k in ahead if k.name.startswith("aten._softmax") and len(k.ins[0][0]) == 4]
    square = [k for k in soft if k.ins[0][0][2] == k.ins[0][0][3]]
    if not square:
        return None
    b, h, s, _ = square[0].ins[0][0]
    size = next((k.ins[-1][0][-2] for k in ahead if "bmm" in k.name and k.outs and k.outs[0][0][-2:] == (s, s)), 0)
    return Attention(b, h, h, s, int(size), True, len(square)) if size else None


def shape_of(captures: tuple[Capture, ...], axes: ScriptSplit) -> Shape | None:
    """Return the transformer that was captured; None where the parameters are not those of one."""
    attention = attention_of(captures[0])
    if attention is None:
        return None
    best: tuple[float, Shape] | None = None
    for scale in dict.fromkeys((1, axes.tp)):  # parameters may be counted whole, or as they lie on a rank
        total = scale * sum(c.facts["model"]["parameters"] for c in captures)
        sizes = {n: tuple(s) for c in reversed(captures) for n, s in c.facts["model"]["shapes"].items()}
        found = _shape(sizes, attention, scale, axes, total, captures)
        if found is not None and (best is None or abs(found.params / total - 1) < best[0]):
            best = (abs(found.params / total - 1), found)
    return best[1] if best is not None and best[0] < FAR else None


def _shape(
    sizes: Sizes, attention: Attention, scale: int, axes: ScriptSplit, total: int, captures: tuple[Capture, ...]
) -> Shape | None:
    layers, inner, outer = _layers(sizes)
    tables = sorted((s for s in outer.values() if len(s) == 2), reverse=True)
    if not layers or not tables:
        return None
    hidden = min(tables[0])
    layers = max(layers, sum(_layers(c.facts["model"]["shapes"])[0] for c in captures))
    heads, kv, size = attention.heads * axes.tp, attention.kv_heads * axes.tp, attention.head_size
    kv = next((n for n in (heads, kv) if _has_side(inner, n * size, hidden, scale)), kv)
    kv = _keys(inner, hidden, heads, size, scale) or kv
    if not any(_has_side(inner, side * size, hidden, scale) for side in (heads, heads + 2 * kv)):
        return None  # its queries are not counted so
    matrices = [s for n, s in inner.items() if len(s) == 2 and not _EXPERT.search(n)]
    spent = 2 * hidden * size * (heads + kv)
    block = scale * sum(a * b for a, b in matrices) - spent
    experts = _experts(inner, captures[0], hidden)
    widths = [max(s) for s in matrices if min(s) <= hidden and max(s) * scale * hidden <= block]
    ffn, gated = _ffn(block, hidden, [w * scale for w in widths])
    vocab = max(tables[0]) * (scale if tables[0][0] != hidden else 1)
    rows = [b if a == hidden and b != hidden else a for a, b in tables if hidden in (a, b)]
    places = [number for number in rows if number != rows[0]]  # learned positions may be fewer than the hidden size
    names = set(inner)
    norms = sum(len(s) == 1 and s[0] == hidden and n.endswith("weight") for n, s in inner.items())
    fields: dict[str, object] = {
        "name": captures[0].facts["model"].get("class", "model"),
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "head_size": size, "ffn": ffn,
        "gated": gated, "vocab": vocab, "tied": rows.count(rows[0]) == 1, "causal": attention.causal, "norms": norms,
        "biases": any("bias" in n and not _is_norm(n, inner) for n in names),
        "norm_biases": any("bias" in n and _is_norm(n, inner) for n in names),
        "positions": places[0] if places else 0,
        **experts,
    }  # fmt: skip
    try:
        found = Shape.model_validate(fields)
    except ValueError:
        return None
    missing = total - found.params
    return found.model_copy(update={"extra_params": missing}) if 0 < missing < FAR * total else found


def _layers(sizes: Mapping[str, Iterable[int]]) -> tuple[int, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return how many layers alike there are, the parameters of the first, and those outside of them."""
    lists: dict[str, dict[int, dict[str, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for name, size in sizes.items():
        if match := _LAYER.match(name):
            lists[match[1]][int(match[2])][match[3]] = tuple(size)
    if not lists:
        return 0, {}, {}
    prefix = max(lists, key=lambda each: len(lists[each]))
    chosen = lists[prefix]
    kind = max(chosen.values(), key=lambda each: sum(map(len, each.values())))
    alike = [each for each in chosen.values() if set(each) == set(kind)]
    outer = {name: tuple(size) for name, size in sizes.items() if not name.startswith(f"{prefix}.")}
    return len(alike), kind, outer


def _has_side(inner: Sizes, side: int, hidden: int, scale: int) -> bool:
    """Whether a matrix of a layer, either way round, leads from the hidden size to this one."""
    found = [s for s in inner.values() if len(s) == 2]
    return any((scale * a, b) == (side, hidden) or (a, scale * b) == (hidden, side) for a, b in found)


def _keys(inner: Sizes, hidden: int, heads: int, size: int, scale: int) -> int:
    """Return the heads of keys that a projection of keys has, by its name; 0 where it is fused with the queries'."""
    for name, shape in inner.items():
        if re.search(r"(^|[._])(k|wk|key|k_proj)([._]|$)", name) and len(shape) == 2:
            return scale * shape[0] // size
    for shape in inner.values():
        if len(shape) == 2 and shape[1] == hidden and shape[0] * scale > heads * size:
            both = shape[0] * scale - heads * size
            if both % (2 * size) == 0 and both // (2 * size) <= heads:
                return both // (2 * size)
    return 0


def _ffn(block: int, hidden: int, widths: list[int]) -> tuple[int, bool]:
    """Return the width of a feed-forward block of so many parameters, and whether it is gated."""
    for width in sorted(set(widths), reverse=True):
        for wide in (width, width // 2):
            for matrices in (3, 2):
                if abs(matrices * hidden * wide / max(block, 1) - 1) < FAR:
                    return wide, matrices == 3
    return max(1, round(block / (2 * hidden))), False


def _experts(inner: Sizes, capture: Capture, hidden: int) -> dict[str, object]:
    """Return the experts of a layer: a list of them, or parameters with a dimension more."""
    listed = {int(m[3]) for n in inner if (m := _EXPERT.search(n))}
    stacked = [s for n, s in inner.items() if len(s) == 3]
    count = len(listed) or (stacked[0][0] if stacked else 0)
    if count < 2:
        return {}
    one = [s for n, s in inner.items() if (m := _EXPERT.search(n)) and int(m[3]) == min(listed)]
    sides = [s[-2:] for s in (one or stacked)]
    chosen = [k.args[1] for k, _ in step_kernels(capture, "forward") if k.name.startswith("aten.topk")]
    top = next((int(str(k)) for k in chosen if isinstance(k, int)), 1)
    wide = max(max(each) if min(each) == hidden else min(each) for each in sides if hidden in each) if sides else hidden
    return {"moe": {"experts": count, "top_k": min(top, count), "ffn": wide}}


def _is_norm(name: str, inner: Sizes) -> bool:
    weight = inner.get(name.replace("bias", "weight"))
    return weight is not None and len(weight) == 1


def layer_list(captures: tuple[Capture, ...], split: int = 1) -> JsonObject:
    """Return a model as layers in the order of its forward: operations, parameters and outputs of one sample.

    `split` ranks share the operations of each.
    """
    capture = captures[0]
    batch = samples_of(capture)
    flops: dict[str, float] = defaultdict(float)
    written: dict[str, int] = defaultdict(int)
    for kernel, module in step_kernels(capture, "forward"):
        flops[module] += split * useful_flops(kernel) / batch
        largest = max((elements for _, _, elements in kernel.outs), default=0)
        written[module] = max(written[module], largest // batch)
    params: dict[str, int] = defaultdict(int)
    for name, size in capture.facts["model"]["shapes"].items():
        params[_owner(name, flops)] += math.prod(size)
    rows: list[JsonObject] = [
        # A layer's output stands for the normalisation and activation behind it too, which have no products.
        {"name": name or "model", "flops": flops[name], "params": params.pop(name, 0),
         "out_elements": written[name] if flops[name] else 0}
        for name in flops
    ]  # fmt: skip
    rows += [{"name": name or "rest", "flops": 0.0, "params": size} for name, size in params.items() if size]
    return {"name": str(capture.facts["model"].get("class", "model")), "layers": rows}


def samples_of(capture: Capture) -> int:
    """Return the samples of a step on a rank: what most of the forward's products and convolutions have first."""
    counts: dict[int, float] = defaultdict(float)
    for kernel, _ in step_kernels(capture, "forward"):
        if kernel.flops and kernel.outs and kernel.outs[0][0]:
            counts[kernel.outs[0][0][0]] += kernel.flops
    return max(counts, key=lambda each: counts[each], default=1)


def _owner(name: str, modules: Mapping[str, float]) -> str:
    """Return the module whose kernels a parameter belongs to."""
    parts = re.sub(r"^(module\.|_orig_mod\.)+", "", name).split(".")[:-1]
    while parts and ".".join(parts) not in modules:
        parts.pop()
    return ".".join(parts)
