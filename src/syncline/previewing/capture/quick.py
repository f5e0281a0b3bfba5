"""Operators that have been seen: what a fake tensor gives is made again from its shape instead of worked out.

A layer runs for every micro-batch of every step with the same shapes. torch keeps such results too, but its key takes
longer than the operator; here it is what decides the result of an operator that neither writes nor reads values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

FRESH, VIEW, WRITES, OTHER = "fresh", "view", "writes", "other"
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_MESH = ("_flatten_rank_map", "_layout", "_device_type", "_mesh_dim_names", "_thread_id")
UNKNOWN = object()
_kinds: dict[Any, str] = {}
_seen: dict[Any, Any] = {}  # by operator and arguments: what it gives, None where that must be worked out
_rank_maps: dict[Any, int] = {}
_RESHAPED = (torch.ops.aten.set_, torch.ops.aten.resize_, torch.ops.aten.resize_as_)


class UnkeyedError(Exception):
    """An argument that a key cannot describe."""


def prepare() -> None:
    """Let the fake mode ask here first, and meshes of many ranks be compared by number."""
    slow: Any = FakeTensorMode._cached_dispatch_impl

    def dispatch(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        kind = kind_of(func)
        key = None if kind == OTHER else _key(self, func, args, kwargs)
        if key is None or _seen.get(key, ()) is None:
            return slow(self, func, types, args, kwargs)
        if key in _seen:
            return _again(self, kind, _seen[key], args, kwargs)
        given = _flat((*args, *kwargs.values())) if kind == WRITES else []
        before = [_laid(each) for each in given]
        out = slow(self, func, types, args, kwargs)
        kept = before == [_laid(each) for each in given]
        _seen[key] = _plan(kind, out, args, kwargs) if kept else None
        return out

    FakeTensorMode._cached_dispatch_impl = dispatch  # type: ignore[method-assign]
    _meshes()


def again(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operator gave for such arguments, without asking torch; `UNKNOWN` where it must be asked."""
    kind = kind_of(func)
    key = None if kind == OTHER else _key(mode, func, args, kwargs)
    plan = _seen.get(key) if key is not None else None
    return UNKNOWN if plan is None else _again(mode, kind, plan, args, kwargs)


def _key(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Return what decides the result of an operator, or None where that cannot be told."""
    key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    try:
        _add(key, args, mode)
        if kwargs:
            _add(key, tuple(kwargs.items()), mode)
    except UnkeyedError:
        return None
    return tuple(key)


def _again(mode: Any, kind: str, plan: Any, args: Any, kwargs: Any) -> Any:
    return _given(plan, args, kwargs) if kind == WRITES else _made(mode, plan, args)


def kind_of(func: Any) -> str:
    """Return what an operator always gives: new tensors, a view of its first argument, what it writes into, or else."""
    found = _kinds.get(func)
    if found is None:
        found = _kinds[func] = _kind(func)
    return found


def _kind(func: Any) -> str:
    if not isinstance(func, torch._ops.OpOverload) or any(t in func.tags for t in _TAGS):
        return OTHER
    schema = func._schema
    if schema.is_mutable and func.namespace in ("aten", "fsdp"):
        return OTHER if func.overloadpacket in _RESHAPED else WRITES
    if func.namespace != "aten" or func in (torch.ops.aten.lift.default, torch.ops.aten.lift_fresh.default):
        return OTHER
    if all(each.alias_info is None for each in (*schema.arguments, *schema.returns)):
        return FRESH
    implied = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
    )
    return VIEW if func.is_view and len(schema.returns) == 1 and not implied else OTHER


def _add(key: list[Any], values: Any, mode: Any) -> None:
    key.append(len(values))
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.fake_mode is not mode or value.layout is not torch.strided:
                raise UnkeyedError
            key += (value.shape, value.stride(), value.storage_offset(), value.dtype, value.fake_device)
            key.append(value.requires_grad)
        elif kind in _PLAIN:
            key += (kind, value)
        elif kind in (list, tuple, torch.Size):
            _add(key, value, mode)
        else:
            raise UnkeyedError


def _flat(values: Any) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _flat(value)
        elif type(value) is FakeTensor:
            found.append(value)
    return found


def _laid(tensor: Any) -> tuple[Any, ...]:
    """Return where a tensor lies: what an operator that only writes its contents leaves as it was."""
    storage = tensor.untyped_storage()
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, storage._cdata, storage.nbytes()


def _given(plan: Any, args: Any, kwargs: Any) -> Any:
    places, several = plan
    if not several and not places:
        return None
    given = _flat((*args, *kwargs.values()))
    return tuple(given[place] for place in places) if several else given[places[0]]


def _plan(kind: str, out: Any, args: Any, kwargs: Any) -> Any:
    """Return what makes this result again, or None."""
    if kind == WRITES:
        numbers = {id(each): place for place, each in reversed([*enumerate(_flat((*args, *kwargs.values())))])}
        several = type(out) is tuple
        parts = out if several else () if out is None else (out,)
        known = not isinstance(out, list) and all(id(part) in numbers for part in parts)
        return ([numbers[id(part)] for part in parts], several) if known else None
    if kind == VIEW:
        first = args[0] if args else None
        if type(out) is not FakeTensor or type(first) is not FakeTensor or out is first or out.dtype.is_complex:
            return None
        if out.untyped_storage()._cdata != first.untyped_storage()._cdata:
            return None
        return (*_described(out), out.storage_offset())
    if any(isinstance(t, FakeTensor) and t.layout is not torch.strided for t in (*args, *kwargs.values())):
        return None
    given = {t.untyped_storage()._cdata for t in (*args, *kwargs.values()) if isinstance(t, FakeTensor)}
    parts = out if isinstance(out, (tuple, list)) else (out,)
    if not all(_remakable(part, given) for part in parts):
        return None
    rows = [_described(part) if type(part) is FakeTensor else (part,) for part in parts]
    return rows, type(out) is list, isinstance(out, (tuple, list))


def _remakable(part: Any, given: set[int]) -> bool:
    if type(part) in (int, float, bool, type(None)):
        return True
    if (
        type(part) is not FakeTensor
        or part.layout is not torch.strided
        or part.constant is not None
        or part.requires_grad
        or part.dtype.is_complex
    ):
        return False
    storage = part.untyped_storage()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(part.shape, part.stride(), strict=True))
    least = reach * part.element_size() if part.numel() else 0
    return storage._cdata not in given and not part.storage_offset() and storage.nbytes() == least


def _described(out: Any) -> tuple[Any, ...]:
    return out.shape, out.stride(), out.dtype, out.fake_device


def _made(mode: Any, plan: Any, args: Any) -> Any:
    if len(plan) == 5:
        shape, stride, dtype, device, offset = plan
        with in_kernel_invocation_manager(mode):
            view = torch.empty(0, dtype=dtype, device="meta")
            view.set_(args[0].untyped_storage(), offset, shape, stride)
        return FakeTensor(mode, view, device)
    rows, listed, several = plan
    made = [row[0] if len(row) == 1 else _empty(mode, *row) for row in rows]
    return made if listed else tuple(made) if several else made[0]


def _empty(mode: Any, shape: Any, stride: Any, dtype: Any, device: Any) -> Any:
    with in_kernel_invocation_manager(mode):
        empty = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return FakeTensor(mode, empty, device)


def _meshes() -> None:
    """Give the ranks of a mesh a number: DTensor compares meshes with every operator, rank by rank."""
    from torch.distributed.device_mesh import DeviceMesh

    mesh: Any = DeviceMesh
    by_rank = mesh.__eq__

    def number(self: Any) -> int:
        found = self.__dict__.get("_syncline_number")
        if found is None:
            found = self.__dict__["_syncline_number"] = _rank_maps.setdefault(self._flatten_rank_map, len(_rank_maps))
        return int(found)

    def equal(self: Any, other: object) -> bool:
        if self is other or not isinstance(other, DeviceMesh):
            return self is other
        if not all(hasattr(self, name) for name in _MESH):  # a torch that keeps a mesh in another way
            return bool(by_rank(self, other))
        mine, its = (
            (number(each), each._layout, each._device_type, each._mesh_dim_names, each._thread_id)
            for each in (self, other)
        )
        return mine == its

    mesh.__eq__ = equal
