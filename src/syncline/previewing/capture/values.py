"""What a script reads of a tensor that has no value: a stated stand-in, listed with the line that asked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from syncline.previewing.capture.log import Log

aten = torch.ops.aten
_TRUE = {aten.isfinite, aten.eq, aten.isclose, aten._is_all_true}  # the last asks whether arguments are valid
_FALSE = {aten.isnan, aten.isinf, aten.ne}
_INFINITE = (math.inf, -math.inf)
_ZERO = {aten.zeros, aten.zeros_like, aten.new_zeros, aten.zero_}
_ONE = {aten.ones, aten.ones_like, aten.new_ones}  # as masks of sequences without padding are
_FILLED = {aten.full, aten.full_like, aten.new_full}
_ARITHMETIC = ("add", "sub", "mul", "eq", "ne", "gt", "ge", "lt", "le")
_IN_PLACE = ("add", "sub", "mul", "div", "logical_or")
_OF_TWO: dict[Any, Callable[[Any, Any], Any]] = {
    **{
        getattr(aten, name): getattr(operator, name)
        for name in ("add", "sub", "mul", "eq", "ne", "gt", "ge", "lt", "le")
    },
    aten.div: lambda a, b: a / b if b else None,
    aten.logical_or: lambda a, b: a or b,
    aten.bitwise_or: lambda a, b: a or b,
    aten.logical_and: lambda a, b: a and b,
    aten.bitwise_and: lambda a, b: a and b,
    aten.maximum: max,
    aten.minimum: min,
}
_OF_TWO |= {
    getattr(aten, f"{name}_"): _OF_TWO[getattr(aten, name)] for name in ("add", "sub", "mul", "div", "logical_or")
}
_MOVES = {aten.add, aten.add_, aten.sub, aten.sub_, aten.mul, aten.mul_}
_WHOLE = {torch.int64, torch.int32, torch.int16}
_SAME = {
    aten._to_copy, aten.clone, aten.all, aten.any, aten._unsafe_view, aten.index, aten.max, aten.min, aten.amax,
    aten.amin, aten.mean, aten.repeat, aten.stack, aten.cat,
}  # fmt: skip
"""Operators, beside views, whose result has the value of what they are given."""
_KEPT = {aten._to_copy, aten.clone, aten.eq, aten.ne, aten.gt, aten.ge, aten.lt, aten.le, aten.any, aten.all}
"""Operators, beside views, that are worked out on the numbers a script put into a tensor."""
MOST_KNOWN = 4096


def hinted(func: Any, args: Any, out: Any) -> None:
    """Carry what is known of a value: checks for infinities pass, counts of a router are balanced."""
    packet = func.overloadpacket
    if _followed(func, args, out):
        return
    if packet is aten._amp_foreach_non_finite_check_and_unscale_:  # else a scaler would skip every step
        args[1]._stand_in = 0.0
        return
    value = _joined(packet, args) if packet in _OF_TWO else None
    if value is not None:
        pass
    elif packet in _TRUE or packet in _FALSE:
        value = (packet in _TRUE) != (
            len(args) > 1 and isinstance(args[1], float) and args[1] in _INFINITE
        )  # nothing equals an infinity
    elif packet in _ZERO:
        value = 0 if out.numel() == 1 else None
    elif packet in _ONE:
        value = 1
    elif packet in _FILLED:
        value = args[-1]
    elif packet in (aten.bincount, aten.histc):
        value = args[0].numel() / max(out.numel(), 1)
    elif packet is aten.one_hot and out.ndim:
        value = 1 / out.shape[-1]
    elif args:
        first = args[0][0] if isinstance(args[0], (list, tuple)) and args[0] else args[0]
        known = getattr(first, "_stand_in", None)
        if known is None:
            if func._schema.is_mutable:
                forget(first)
            return
        if func.is_view or packet in _SAME:
            value = known
        elif packet in (aten.logical_not, aten.bitwise_not):
            value = not known
        elif packet is aten.sum and isinstance(out, torch.Tensor):
            value = known * first.numel() / max(out.numel(), 1)
    if func._schema.is_mutable and args:
        forget(args[0])
    if value is None:
        return
    for tensor in out if isinstance(out, (list, tuple)) else (out,):
        if isinstance(tensor, FakeTensor):
            tensor._stand_in = value


def _joined(packet: Any, args: Any) -> Any:
    """Return what an operator makes of two known values; numbers and tensors of one element are known exactly.

    An index that nobody knows is what it would be read as: `data[i : i + length]` has that length.
    """
    known = _index if packet in _MOVES else _stand_in
    a, b = (each if isinstance(each, (int, float)) else known(each) for each in args[:2])
    return None if a is None or b is None else _OF_TWO[packet](a, b)


def _stand_in(tensor: Any) -> Any:
    return getattr(tensor, "_stand_in", None)


def _index(tensor: Any) -> Any:
    known = _stand_in(tensor)
    whole = isinstance(tensor, FakeTensor) and tensor.numel() == 1 and tensor.dtype in _WHOLE
    return value_of(tensor) if known is None and whole else known


def _followed(func: Any, args: Any, out: Any) -> bool:
    """Carry the numbers that the script itself put into a tensor; return whether there were any."""
    given = args[0] if args else None
    known = getattr(given, "_known", None)
    known = getattr(given, "constant", None) if known is None else known
    if known is None or known.numel() > MOST_KNOWN or not (func.is_view or func.overloadpacket in _KEPT):
        return False
    if any(isinstance(each, torch.Tensor) for each in args[1:]):
        return False
    with _disable_current_modes():
        real = known.to(out.dtype) if func.overloadpacket is aten._to_copy else func(known, *args[1:])
        pairs = zip(out, real, strict=True) if isinstance(out, (list, tuple)) else [(out, real)]
        for fake, value in pairs:
            fake._known = value
            if value.numel() == 1:
                fake._stand_in = value.item()
    return True


def remembered(tensor: Any, source: Any) -> Any:
    """Return a tensor that keeps the numbers it was made of."""
    plain = source if isinstance(source, (list, tuple)) else [source]
    if len(plain) <= MOST_KNOWN and all(isinstance(each, (bool, int, float)) for each in plain):
        with _disable_current_modes():
            tensor._known = torch.tensor(source, dtype=tensor.dtype)
        if len(plain) == 1:
            tensor._stand_in = plain[0]
    return tensor


def numbers_of(tensor: Any) -> list[Any] | None:
    """Return the numbers that a script put into a tensor, in a list; None where nobody knows them."""
    known = tensor.constant if getattr(tensor, "constant", None) is not None else getattr(tensor, "_known", None)
    if known is None:
        return None if isinstance(tensor, FakeTensor) else list(tensor.tolist())
    with _disable_current_modes():
        return list(known.tolist())


def forget(*tensors: Any) -> None:
    """A tensor was written: what was known of it is not known any more."""
    for tensor in tensors:
        for name in ("_stand_in", "_known"):
            if isinstance(tensor, FakeTensor) and hasattr(tensor, name):
                delattr(tensor, name)


def value_of(tensor: Any) -> bool | int | float:
    """Return the stand-in for one element."""
    known = getattr(tensor, "_stand_in", None)
    if tensor.dtype is torch.bool:
        return bool(known) if known is not None else False
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return float(known) if known is not None else 1.0
    return round(known) if known is not None else 1


def rows_of(mask: Any, log: Log) -> int:
    """Return how many elements of a mask are set."""
    known = getattr(mask, "_stand_in", None)
    share = float(known) if known is not None and known is not True and known is not False else 0.5
    rows: int = max(1, round(mask.numel() * share))
    log.stand_in("rows chosen by a mask", f"{share:.3g} of {mask.numel():,}")
    return rows


def prepare(log: Log, synced: Any) -> None:
    """Answer `tolist`, `numpy` and `format` of fake tensors."""
    fake: Any = FakeTensor

    def tolist(self: Any) -> Any:
        known = self.constant if self.constant is not None else getattr(self, "_known", None)
        if known is not None:
            with _disable_current_modes():
                return known.tolist()
        synced(self)
        value = value_of(self)
        log.stand_in("tolist()", f"{value} for each")

        def nested(shape: Any) -> Any:
            return value if not shape else [nested(shape[1:]) for _ in range(shape[0])]

        return nested(tuple(self.shape))

    def numpy(self: Any, *_: Any, **__: Any) -> Any:
        import numpy as np

        synced(self)
        log.stand_in("numpy()", value_of(self))
        with _disable_current_modes():
            kind = torch.empty(0, dtype=torch.float32 if self.dtype is torch.bfloat16 else self.dtype).numpy().dtype
        return np.full(tuple(self.shape), value_of(self), dtype=kind)

    def formatted(self: Any, how: str) -> str:  # torch formats a tensor of one value only where no subclass is one
        return format(self.item(), how) if self.dim() == 0 else object.__format__(self, how)

    fake.tolist, fake.numpy, fake.__format__ = tolist, numpy, formatted
    fake.__array__ = lambda self, *a, **k: numpy(self)
