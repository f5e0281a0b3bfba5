"""What a script reads of a tensor that has no value: a stated stand-in, listed with the line that asked."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator
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
_MAKES = {aten.arange, aten.linspace, aten.eye, aten.full, aten.zeros, aten.ones, aten.scalar_tensor, aten.logspace}
"""Operators that make tensors of numbers alone."""
MOST_KNOWN = 4096
CPU = torch.device("cpu")
_overwritten: dict[int, Any] = {}
"""Memory with numbers that were known: something unknown was written there."""


def hinted(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Carry what is known of a value: checks for infinities pass, counts of a router are balanced."""
    packet = func.overloadpacket
    if _followed(func, args, kwargs, out):
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
    elif packet is aten.uniform_ and out.numel() == 1:
        value = sum(args[1:3]) / 2 if len(args) == 3 else 0.5
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


def _followed(func: Any, args: Any, kwargs: Any, out: Any) -> bool:
    """Work small tensors out on the numbers that the script itself put into them; return whether all are known."""
    given = [each for each in _leaves((*args, *kwargs.values())) if isinstance(each, torch.Tensor)]
    made = [each for each in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(each, torch.Tensor)]
    small = all(each.numel() <= MOST_KNOWN for each in (*given, *made))
    if not small or (not given and func.overloadpacket not in _MAKES):
        return False
    reals = {id(each): _real(each) for each in given}
    if torch.Tag.nondeterministic_seeded in func.tags or any(real is None for real in reals.values()):
        return False

    def real(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(real, value)) if type(value) in (list, tuple) else value
        return (
            reals[id(value)] if isinstance(value, torch.Tensor) else CPU if isinstance(value, torch.device) else value
        )

    with _disable_current_modes(), contextlib.suppress(Exception):
        found = func(*real(args), **{name: real(value) for name, value in kwargs.items()})
        for fake, value in zip(made, found if isinstance(found, (list, tuple)) else [found], strict=False):
            if isinstance(fake, FakeTensor) and isinstance(value, torch.Tensor):
                fake._known = value
                if value.numel():  # what stands for each beside tensors that are not known
                    alike = bool((value == value.flatten()[0]).all())
                    fake._stand_in = value.flatten()[0].item() if alike else value.double().mean().item()
        return True
    return False


def _leaves(values: Any) -> Iterator[Any]:
    for each in values:
        if isinstance(each, (list, tuple)):
            yield from _leaves(each)
        else:
            yield each


def _real(tensor: Any) -> Any:
    """Return the numbers of a tensor, in memory that its views share; None where nobody knows them."""
    if type(tensor) is not FakeTensor:
        return tensor if type(tensor) is torch.Tensor else None
    known = getattr(tensor, "_known", None)
    if known is None and tensor.constant is not None:
        known = tensor.constant.clone()
    return None if known is None or known.untyped_storage()._cdata in _overwritten else known


def remembered(tensor: Any, source: Any) -> Any:
    """Return a tensor that keeps the numbers it was made of."""
    plain = source if isinstance(source, (list, tuple)) else [source]
    if len(plain) <= MOST_KNOWN and all(isinstance(each, (bool, int, float)) for each in plain):
        with _disable_current_modes():
            tensor._known = torch.tensor(source, dtype=tensor.dtype)
        if len(plain) == 1:
            tensor._stand_in = plain[0]
    return tensor


def copied(tensor: Any, memo: dict[int, Any]) -> None:
    """Let `deepcopy` take along the numbers of a tensor, which are real, as they are."""
    with _disable_current_modes():
        for known in (getattr(tensor, name, None) for name in ("constant", "_known")):
            if known is not None:
                memo[id(known)] = known.clone()


def numbers_of(tensor: Any) -> Any:
    """Return the numbers that a script put into a tensor, in a list; None where nobody knows them."""
    known = _real(tensor)
    with _disable_current_modes():
        return None if known is None else known.tolist()


def forget(*tensors: Any) -> None:
    """A tensor was written: what was known of it, and of its views, is not known any more."""
    for tensor in tensors:
        if not isinstance(tensor, FakeTensor):
            continue
        if (known := getattr(tensor, "_known", None)) is not None:
            _overwritten[known.untyped_storage()._cdata] = known
        for name in ("_stand_in", "_known"):
            if hasattr(tensor, name):
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
    if (exact := _real(mask)) is not None:
        with _disable_current_modes():
            return int(exact.count_nonzero())
    known = getattr(mask, "_stand_in", None)
    share = float(known) if known is not None and known is not True and known is not False else 0.5
    rows: int = max(1, round(mask.numel() * share))
    log.stand_in("rows chosen by a mask", f"{share:.3g} of {mask.numel():,}")
    return rows


def prepare(log: Log, synced: Any) -> None:
    """Answer `tolist`, `numpy` and `format` of fake tensors."""
    fake: Any = FakeTensor

    def tolist(self: Any) -> Any:
        synced(self)
        if (known := numbers_of(self)) is not None:
            return known
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
