"""The arguments of a captured kernel made anew: tensors of its shapes, types and strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

INDEXED = {"embedding": (1, 0, 0), "nll_loss_forward": (1, 0, 1), "nll_loss_backward": (2, 1, 1)}
"""Operators with an index: which argument it is, into which other, along which of its dimensions."""
ALONG = {"gather": 2, "scatter": 2, "scatter_": 2, "index_select": 2, "scatter_add": 2, "scatter_add_": 2}


def size_of(spec: Mapping[str, Any]) -> int:
    """Return the bytes of the tensors that a kernel takes and gives."""
    return sum(elements * _dtype(name).itemsize for _, name, elements in (*spec["ins"], *spec["outs"]))


class Arguments:
    """One set of tensors for a kernel."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        namespace, name, overload = spec["op"].split(".")
        self.spec, self.name = spec, name
        self.op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        self.args = [self._made(each, place) for place, each in enumerate(spec["args"])]
        self.kwargs = {key: self._made(value, -1) for key, value in spec["kwargs"].items()}

    def call(self) -> Callable[[], object]:
        """Return the launch of the kernel."""
        if "scaled_dot_product" in self.name:
            return self._attention()
        op, args, kwargs = self.op, self.args, self.kwargs
        return lambda: op(*args, **kwargs)

    def _made(self, value: Any, place: int) -> Any:
        if isinstance(value, list):
            return [self._made(each, place) for each in value]
        if not isinstance(value, dict):
            return value
        if "repr" in value:
            return _word(value["repr"])
        return self._filled(value, place)

    def _filled(self, value: dict[str, Any], place: int) -> Any:
        dtype = _dtype(value["dtype"])
        made = torch.empty_strided(value["shape"], value["stride"], dtype=dtype, device=value["on"])
        base = torch.as_strided(made, (_extent(made),), (1,)) if made.numel() else made
        if dtype.is_floating_point and dtype.itemsize > 1:
            base.normal_(0.0, 1.0)
        elif dtype.is_floating_point:
            base.copy_(torch.randn(base.shape, device=base.device).to(dtype))
        elif dtype.is_complex:
            base.zero_()
        elif dtype is torch.bool:
            base.copy_(torch.rand(base.shape, device=base.device) < 0.5)
        elif (bags := self._bags(place, base)) is not None:
            base.copy_(bags)
        elif "grouped_mm" in self.name:
            base.copy_((torch.arange(base.numel(), device=base.device) + 1) * self._grouped() // base.numel())
        else:
            base.copy_(torch.randint(0, self._below(place, value["shape"]), base.shape, device=base.device).to(dtype))
        return made

    def _bags(self, place: int, base: Any) -> Any:
        """Return where bags of rows begin, the bag of each row or the size of each: all bags are alike."""
        if "_embedding_bag" not in self.name or place not in (2, 3, 4):
            return None
        rows, bags = (math.prod(self.spec["args"][which]["shape"]) for which in (1, 2))
        each, count = max(rows // max(bags, 1), 1), torch.arange(base.numel(), device=base.device)
        return {2: count * each, 3: (count // each).clamp(max=max(bags - 1, 0)), 4: torch.full_like(count, each)}[place]

    def _grouped(self) -> int:
        """Return the rows that a grouped product shares out: of the operand that has all groups behind each other."""
        left, right = (each["shape"] for each in self.spec["args"][:2])
        if len(right) > len(left):
            return int(left[0])
        return int(right[-1] if len(left) > len(right) else left[-1])

    def _below(self, place: int, own: list[int]) -> int:
        """Return one more than the largest number that an index may be."""
        args = self.spec["args"]
        if self.name == "embedding_dense_backward":
            return int(args[2])
        if "_embedding_bag" in self.name and place == 1:
            return int(args[6] if "backward" in self.name else args[0]["shape"][0])
        if self.name in INDEXED and place == INDEXED[self.name][0]:
            _, other, dim = INDEXED[self.name]
            return int(args[other]["shape"][dim if len(args[other]["shape"]) > dim else 0])
        if self.name in ALONG and place == ALONG[self.name]:
            return int(args[0]["shape"][args[1]])
        if self.name.startswith(("index", "_unsafe_index", "_index")) and place == 1 and isinstance(args[1], list):
            sides = [args[0]["shape"][i] for i, each in enumerate(args[1]) if isinstance(each, dict)]
            return max(1, min(map(int, sides), default=1))
        if self.name.startswith("max_pool2d_with_indices"):
            return int(args[1]["shape"][-1] * args[1]["shape"][-2])
        return 2

    def _attention(self) -> Callable[[], object]:
        """Return attention as torch would choose its kernel here; of the backward, with what its forward gave."""
        backward = self.name.endswith("_backward")
        query, key, value = self.args[1:4] if backward else self.args[:3]
        causal = any(arg is True for arg in self.args[3:]) and "flash" in self.name
        scale = self.kwargs.get("scale")
        mask = self.args[4 if backward else 3] if "efficient" in self.name else None
        grouped = {"enable_gqa": True} if query.shape[1] != key.shape[1] else {}
        attend = partial(
            torch.nn.functional.scaled_dot_product_attention, attn_mask=mask, is_causal=causal, scale=scale, **grouped
        )

        def forward() -> Any:
            return attend(query, key, value)

        if not backward:
            return forward
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (query, key, value)]
            out = attend(*leaves)
        grad = self.args[0]
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def _extent(tensor: Any) -> int:
    """Return the elements from a tensor's first to its last."""
    return 1 + sum(int(size - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _dtype(name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."))


def _word(text: str) -> Any:
    """Return a type, layout or device by its name; other words are themselves."""
    if text.startswith("torch."):
        return getattr(torch, text.removeprefix("torch."))
    return torch.device(text) if text.startswith(("cuda", "cpu", "xla")) and "/" not in text else text
