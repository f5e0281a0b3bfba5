"""The dispatch mode that sees every operator: what it computes, on which stream, for which module, from which line."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from syncline.previewing.capture import cuda, quick
from syncline.previewing.capture.device import cpp_device, renamed
from syncline.previewing.capture.fused import SHAPES
from syncline.previewing.capture.log import KERNEL, Log
from syncline.previewing.capture.memory import StorageLedger
from syncline.previewing.capture.values import hinted, numbers_of, rows_of, value_of

aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_CHOSEN = {aten.nonzero, aten.masked_select, aten.unique_consecutive, aten._unique2}
_COUNTED = {aten.to_sparse, aten._to_sparse, aten._to_sparse_csr, aten.to_sparse_csr, aten._to_sparse_csc}
_SPARSE = {aten.mm, aten._sparse_mm, aten.addmm, aten._sparse_addmm, aten.bmm, aten._coalesce}
SPARSE = "make the tensor of its indices, by torch.sparse_coo_tensor"
_PLAIN = (torch.Tensor, FakeTensor, torch.nn.Parameter)
_MULTIPLIES = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}
_NO_KERNEL = {
    aten.empty, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten.empty_like, aten.empty_permuted,
    aten._unsafe_view, aten.lift_fresh, aten.detach, aten.alias, aten.set_, aten.resize_, aten.is_same_size,
    aten._has_compatible_shallow_copy_type, aten.record_stream,
}  # fmt: skip


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator is others on every device: a few have a kernel of their own beside that."""
    return bool(func._can_decompose()) and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")


class Recorder(TorchDispatchMode):
    """Records operators on the device that computes; above the fake mode, below autograd and tensor subclasses."""

    supports_higher_order_operators = True

    def __init__(self, log: Log, memory: StorageLedger, collectives: Any, fake: Any, device: str) -> None:
        super().__init__()
        self.log, self.memory, self.collectives, self.fake = log, memory, collectives, fake
        self.device = device  # cuda, or cpu for a script without GPUs
        self.modules: list[str] = []
        self.phase = "forward"
        self.compiled = 0
        self.quiet = 0  # above 0 while shapes are worked out and nothing is run
        self.since = [0, 0]  # operators and modules that the host called since it last launched something
        self.node_of: dict[int, tuple[str, str, int]] = {}
        with fake, _Adds() as adds, torch.enable_grad():
            twice = torch.zeros(2, requires_grad=True).sin()
            (twice.exp() + twice.cos()).sum().backward()
        self.once = adds.held[-1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(each not in _PLAIN for each in types):
            return NotImplemented
        if func is _DEVICE_OF:
            return cpp_device(args[0])
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher(func, args, kwargs or {})
        if func.namespace == "prim":
            return func(*args, **(kwargs or {}))
        kwargs = renamed(kwargs or {})
        packet = func.overloadpacket
        self.since[0] += 1
        if packet not in SHAPES and _is_composite(
            func
        ):  # they arrive whole in inference mode, and later with what was made there
            with self:
                return func.decompose(*args, **kwargs)
        if packet is aten._local_scalar_dense:
            return self._read(args[0])
        if packet in _COUNTED:
            raise NotImplementedError(f"{packet.__name__} counts what is not 0, and a preview has no values: {SPARSE}")
        if packet in (aten.equal, aten.allclose):
            self.synced(args[0])
            self.log.stand_in(f"{packet.__name__}()", "equal where shapes are")
            return args[0].shape == args[1].shape
        if packet in _CHOSEN:
            return self._chosen(packet, args)
        if packet is aten.index:
            args = self._places(args)
        if func is aten.add.Tensor and not kwargs and _held(args[0]) == self.once and _fit(*args):
            func, packet = aten.add_.Tensor, aten.add_  # as autograd adds up gradients that are no tensor subclass
        sparse = next(
            (each for each in args if isinstance(each, FakeTensor) and each.layout is not torch.strided), None
        )
        if packet in _SPARSE and sparse is not None:
            out = sparse if packet is aten._coalesce else args[-1].new_empty((*args[-2].shape[:-1], args[-1].shape[-1]))
        elif packet in SHAPES and (packet is not aten.histc or args[0].is_cuda):
            out = SHAPES[packet](*args, **kwargs)
        else:
            # In inference mode a kept answer is an inference tensor, which cannot be a view of any other.
            fresh = torch.is_inference_mode_enabled()
            self.fake.cache_enabled = not fresh
            out = quick.again(self.fake, func, args, kwargs) if types and not fresh else quick.UNKNOWN
            if out is quick.UNKNOWN:
                out = func(*args, **kwargs)
        if packet in (aten.convolution, aten.convolution_backward):
            out = _laid_out(out, args)
        hinted(func, args, kwargs, out)
        self._record(func, packet, args, kwargs, out)
        return out

    def _higher(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that takes operators; DTensor's random ones are the operator that they place."""
        if func.name() != "run_dtensor_rng_op":
            return func(*args, **kwargs)
        with self:
            return args[2](*args[3:], **kwargs)

    def _read(self, tensor: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            with torch.utils._python_dispatch._disable_current_modes():
                return tensor.item()
        if tensor.constant is not None:
            with torch.utils._python_dispatch._disable_current_modes():
                return tensor.constant.item()
        self.synced(tensor)
        if (known := numbers_of(tensor)) is not None:
            while isinstance(known, list):
                (known,) = known
            return known
        value = value_of(tensor)
        self.log.stand_in("item()", value)
        return value

    def synced(self, tensor: Any) -> None:
        """The host waits for a tensor that it reads."""
        if getattr(tensor, "is_cuda", False):
            cuda.host_waits(cuda.current())

    def _places(self, args: Any) -> Any:
        """Return arguments of an index whose masks are a stated number of places."""
        rows: list[Any] = []
        for each in args[1]:
            if each is None or each.dtype not in (torch.bool, torch.uint8):
                rows.append(each)
                continue
            count = rows_of(each, self.log)
            rows += [each.new_empty(count, dtype=torch.int64) for _ in range(each.ndim)]
        return (args[0], rows, *args[2:])

    def _chosen(self, packet: Any, args: Any) -> Any:
        """Give operators whose result has as many rows as a mask has ones a stated number of them."""
        first = args[0]
        self.synced(first)
        if packet is aten.nonzero:
            return first.new_empty((rows_of(first, self.log), first.ndim), dtype=torch.int64)
        if packet is aten.masked_select:
            return first.new_empty(rows_of(args[1], self.log))
        self.log.stand_in("unique()", "all elements differ")
        index = first.new_empty(first.numel(), dtype=torch.int64)
        return first.new_empty(first.numel()), index, index.new_empty(first.numel())

    def _record(self, func: Any, packet: Any, args: Any, kwargs: Any, out: Any) -> None:
        outs = [t for t in (out if isinstance(out, (list, tuple)) else (out,)) if isinstance(t, FakeTensor)]
        ins = [*_tensors(args), *_tensors(kwargs.values())]
        if self.quiet or any(t.fake_mode is not self.fake for t in (*ins, *outs)):
            return
        if self.collectives.functional(func, args, kwargs, outs):
            return
        there = [t for t in outs if t.fake_device.type == self.device]
        if not there and not any(t.fake_device.type == self.device for t in ins):
            return
        module, line, phase, compiled = self.where()
        fresh = [self.memory.seen(t, module, line) for t in there]
        writes = func._schema.is_mutable
        if packet in _NO_KERNEL or (not (any(fresh) or writes) and there):
            return
        signature = self._signature(func, args, kwargs, ins, outs)
        self._launched(signature, (module, line, phase), compiled, ins, outs)
        if outs and not there:
            cuda.host_waits(cuda.current())

    def custom(self, name: str, tensors: list[Any]) -> None:
        """Record a kernel that is no operator of torch, by the tensors it is given."""
        on_gpu = [t for t in tensors if t.fake_device.type == "cuda"]
        key = (name, _key(tuple(on_gpu)))
        found = self.log.signatures.setdefault(key, len(self.log.specs))
        if found == len(self.log.specs):
            shapes = [_shape(t) for t in on_gpu]
            self.log.specs.append(
                {
                    "op": f"triton.{name}", "flops": 0, "args": _plain(on_gpu), "kwargs": {}, "ins": shapes, "outs": [],
                    "tf32": False, "view": False, "host": False, "namespace": "triton", "mutable": False,
                }
            )  # fmt: skip
        module, line, phase, compiled = self.where()
        self._launched(found, (module, line, phase), compiled, on_gpu, [])

    def _launched(
        self, signature: int, where: tuple[str, str, str], compiled: int, ins: list[Any], outs: list[Any]
    ) -> None:
        self.log.add(KERNEL, cuda.current(), signature, *where, [compiled, *self._touched(ins, outs), *self.since])
        self.since = [0, 0]

    def _touched(self, ins: list[Any], outs: list[Any]) -> list[list[int]]:
        """Return the allocations read and written, for what fused code leaves out."""
        live, parts = self.memory.live, ([t for t in part[:8] if t.layout is torch.strided] for part in (ins, outs))
        return [[live[key][0] for t in part if (key := t.untyped_storage()._cdata) in live] for part in parts]

    def where(self) -> tuple[str, str, str, int]:
        """Return module, script line, phase and whether the code is compiled."""
        node = torch._C._current_autograd_node()
        line = self.log.line()
        if node is not None and not self.modules:
            module, forward_line, compiled = self.node_of.get(node._sequence_nr(), ("", line, 0))
            return module, forward_line, "backward", compiled
        module = self.modules[-1] if self.modules else ""
        phase = "backward" if node is not None else self.phase
        if node is None:
            self.node_of[torch._C._autograd._get_sequence_nr() - 1] = (module, line, self.compiled)
        return module, line, phase, self.compiled

    def _signature(self, func: Any, args: Any, kwargs: Any, ins: list[Any], outs: list[Any]) -> int:
        key = (func, _key(args), _key(tuple(kwargs.items())))
        found = self.log.signatures.get(key)
        if found is None:
            found = self.log.signatures[key] = len(self.log.specs)
            self.log.specs.append(_spec(func, args, kwargs, ins, outs, self.device))
            if func.overloadpacket in _MULTIPLIES and not all(t.numel() for t in ins):
                self.log.note("empty tensors are multiplied: one of the stand-ins may have decided a size")
        return found


class _Adds(TorchDispatchMode):
    """How often what is added to is held, as it arrives here: of gradients that add up, by autograd alone."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.add.Tensor:
            self.held.append(_held(args[0]))
        return func(*args, **(kwargs or {}))


def _held(tensor: Any) -> Any:
    """Return how many hold a tensor and its memory while autograd works; nothing else of what it runs."""
    if type(tensor) is not FakeTensor or torch._C._current_autograd_node() is None or torch.is_grad_enabled():
        return None
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _fit(one: Any, two: Any) -> bool:
    """Whether two tensors lie alike."""
    return type(two) is FakeTensor and _key(one) == _key(two)


def _laid_out(out: Any, args: Any) -> Any:
    """Return what a convolution gives in the layout of its operands, as cuDNN writes it and a CPU would not."""
    last = torch.channels_last
    given = [t for t in args[:3] if isinstance(t, torch.Tensor) and t.ndim == 4 and not t.is_contiguous()]
    if not any(t.is_cuda and t.is_contiguous(memory_format=last) for t in given):
        return out
    if isinstance(out, (list, tuple)):
        return tuple(each if each is None or each.ndim != 4 else _laid_out(each, args) for each in out)
    return torch.empty_like(out, memory_format=last)


def _tensors(values: Any) -> list[Any]:
    found = []
    for each in values:
        if isinstance(each, FakeTensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += _tensors(each)
    return found


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype, _stride(value), value.device.type)
    if isinstance(value, (list, tuple)):
        return tuple(_key(each) for each in value)
    return value if isinstance(value, (int, float, str, bool, type(None), torch.dtype)) else str(value)


def every_head(func: Any, args: Any) -> Any:
    """Return arguments of attention with keys and values for every head of the queries, as shapes.

    torch 2.11 and before counts no operations where queries are grouped.
    """
    name = func.overloadpacket.__name__
    if not (name.startswith("_scaled_dot_product") and "attention" in name):
        return args
    first = 1 if "backward" in name else 0
    query, *read = args[first : first + 3]
    shapes = [torch.Size((each.shape[0], query.shape[1], *each.shape[2:])) for each in read]
    return (*args[: first + 1], *shapes, *args[first + 3 :])


def _flops(func: Any, args: Any, kwargs: Any, outs: list[Any]) -> int:
    """Return the operations of a kernel.

    torch counts a grouped product as that of one group: each row meets one expert's matrix.
    """
    if func.overloadpacket.__name__ in ("_grouped_mm", "_scaled_grouped_mm"):
        left, right = args[0], args[1]
        wide, narrow = (right, left.shape[-2]) if left.ndim > right.ndim else (left, right.shape[-1])
        return 2 * int(wide.numel()) * int(narrow)
    counted = flop_registry.get(func.overloadpacket)
    try:
        given = every_head(func, args)
        return int(counted(*given, **kwargs, out_val=outs[0] if len(outs) == 1 else tuple(outs))) if counted else 0
    except Exception:
        return 0


def _in_tf32(func: Any) -> bool:
    """Return whether 32-bit operands lose bits for speed: cuDNN has a switch of its own, which is on by default."""
    name = func.overloadpacket.__name__
    by_cudnn = "convolution" in name or "cudnn_rnn" in name
    return bool((torch.backends.cudnn if by_cudnn else torch.backends.cuda.matmul).allow_tf32)


def _spec(func: Any, args: Any, kwargs: Any, ins: list[Any], outs: list[Any], device: str) -> dict[str, object]:
    """Return what a kernel does, as plain data."""
    return {
        "op": str(func),
        "flops": _flops(func, args, kwargs, outs),
        "args": _plain(args),
        "kwargs": {k: _plain(v) for k, v in kwargs.items()},
        "ins": [_shape(t) for t in ins],
        "outs": [_shape(t) for t in outs],
        "tf32": _in_tf32(func),
        "view": not func._schema.is_mutable and not outs,
        "host": device != "cpu" and any(t.fake_device.type == "cpu" and t.ndim > 0 for t in (*ins, *outs)),
        "namespace": func.namespace,
        "mutable": bool(func._schema.is_mutable),
    }


def _shape(tensor: Any) -> list[Any]:
    return [list(tensor.shape), str(tensor.dtype).removeprefix("torch."), _dense(tensor)]


def _stride(tensor: Any) -> tuple[int, ...]:
    """Return where elements lie; of a sparse tensor, where its rows would."""
    return tuple(tensor.stride()) if tensor.layout is torch.strided else (1,) * tensor.ndim


def _dense(tensor: Any) -> int:
    """Return the elements that lie in memory: those of an expanded tensor are fewer than its shape says."""
    total = 1
    for size, stride in zip(tensor.shape, _stride(tensor), strict=True):
        total *= size if stride else 1
    return total


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {
            "shape": list(value.shape),
            "stride": list(_stride(value)),
            "dtype": str(value.dtype),
            "on": value.device.type,
        }
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (int, float, bool, type(None))):
        return value
    return {"repr": str(value)}
