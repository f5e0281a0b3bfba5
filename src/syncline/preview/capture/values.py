"""What a script reads of a tensor that has no value: a stated stand-in, listed with the line that asked."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from syncline.preview.capture.log import Log

aten = torch.ops.aten
_TRUE = {aten.isfinite, aten.eq, aten.isclose}
_FALSE = {aten.isnan, aten.isinf, aten.ne}
_SAME = {
    aten._to_copy,
    aten.view,
    aten.detach,
    aten.clone,
    aten.select,
    aten.slice,
    aten.expand,
    aten.all,
    aten.any,
    aten.alias,
    aten.squeeze,
    aten.unsqueeze,
    aten.reshape,
    aten._unsafe_view,
    aten.permute,
    aten.transpose,
    aten.t,
    aten.index,
    aten.flatten,
    aten.max,
    aten.min,
    aten.amax,
    aten.amin,
    aten.mean,
    aten.split,
    aten.unbind,
    aten.repeat,
    aten.stack,
    aten.cat,
}


def hinted(func: Any, args: Any, out: Any) -> None:
    """Carry what is known of a value: checks for infinities pass, counts of a router are balanced."""
    packet = func.overloadpacket
    value: Any = None
    if packet in _TRUE:
        value = True
    elif packet in _FALSE:
        value = False
    elif packet in (aten.bincount, aten.histc):
        value = args[0].numel() / max(out.numel(), 1)
    elif packet is aten.one_hot and out.ndim:
        value = 1 / out.shape[-1]
    elif args:
        first = args[0][0] if isinstance(args[0], (list, tuple)) and args[0] else args[0]
        known = getattr(first, "_stand_in", None)
        if known is None:
            return
        if packet in _SAME:
            value = known
        elif packet in (aten.logical_not, aten.bitwise_not):
            value = not known
        elif packet is aten.sum and isinstance(out, torch.Tensor):
            value = known * first.numel() / max(out.numel(), 1)
    if value is None:
        return
    for tensor in out if isinstance(out, (list, tuple)) else (out,):
        if isinstance(tensor, FakeTensor):
            tensor._stand_in = value


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
    """Answer `tolist` and `numpy` of fake tensors."""
    fake: Any = FakeTensor

    def tolist(self: Any) -> Any:
        if self.constant is not None:
            return self.constant.tolist()
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
        kind = "float32" if self.dtype.is_floating_point else "int64"
        return np.full(tuple(self.shape), value_of(self), dtype=kind)

    fake.tolist, fake.numpy = tolist, numpy
    fake.__array__ = lambda self, *a, **k: numpy(self)
