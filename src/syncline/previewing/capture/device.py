"""Fake tensors labelled `cuda` on a machine without CUDA.

Python sees `cuda:0`. The C++ side of torch would ask a driver about that, so it is told `xla:0`, a device type that
needs none, that autograd runs in the calling thread and that autocast of `cuda` accepts; it is renamed on its way back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

CPP_TYPE = "xla"
META, CPU = torch.device("meta"), torch.device("cpu")
CUDA_SLOT, META_SLOT, CPP_SLOT = 1, 14, 9  # c10::DeviceType
_library = torch.library.Library("aten", "IMPL")
_DEVICE_OF = torch.ops.prim.device.default
_COPY = torch.ops.aten._to_copy.default


def unnumbered() -> None:
    """Let a tensor that is asked for on `cpu:0` lie on `cpu`, as real ones do."""
    fake: Any = FakeTensor
    make = fake.__new__

    def made(cls: Any, mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        return make(cls, mode, elem, CPU if device.type == "cpu" else device, *args, **kwargs)

    fake.__new__ = made


def prepare() -> None:
    """Make torch accept `cuda` as a label."""
    _guards()
    fakes: Any = import_module("torch._subclasses.fake_tensor")
    for name in ("init_gpu_context", "init_cuda_context"):  # a CUDA build would ask its driver
        if hasattr(fakes, name):
            setattr(fakes, name, lambda *_: None)
    torch.autograd.set_multithreading_enabled(False)
    mode_dispatch, tensor_dispatch = FakeTensorMode.__torch_dispatch__, FakeTensor.__torch_dispatch__.__func__  # type: ignore[attr-defined]

    def of_mode(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF:
            return cpp_device(args[0])
        if func is _COPY and not isinstance(args[0], FakeTensor):  # read from a file, say: its value is not moved
            args = (self.from_tensor(args[0]), *args[1:])
        known = getattr(args[0], "constant", None) if func is _COPY else None
        if known is None:
            return mode_dispatch(self, func, types, args, renamed(kwargs or {}))
        args[0].constant = None  # a known value would be copied, to a device that is not there
        try:
            return mode_dispatch(self, func, types, args, renamed(kwargs or {}))
        finally:
            args[0].constant = known

    def of_tensor(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF:
            return cpp_device(args[0])
        return tensor_dispatch(cls, func, types, args, renamed(kwargs or {}))

    FakeTensorMode.__torch_dispatch__ = of_mode  # type: ignore[method-assign, assignment]
    FakeTensor.__torch_dispatch__ = classmethod(of_tensor)  # type: ignore[assignment]
    common = FakeTensor._find_common_device
    FakeTensor._find_common_device = staticmethod(_lenient(common))  # type: ignore[method-assign, assignment]
    from torch.optim.optimizer import _foreach_supported_types as in_optimizers
    from torch.utils._foreach_utils import _foreach_supported_types as in_utilities

    for name in ("silu_backward", "_fused_rms_norm", "_pack_padded_sequence_backward"):
        _library.impl(name, _never, "CUDA")  # without one they are many operators, or read values
    grouped = torch._C._group_tensors_by_device_and_dtype

    def by_device(*args: Any, **kwargs: Any) -> Any:
        return {
            (None if device is None else whole(device), dtype): rows
            for (device, dtype), rows in grouped(*args, **kwargs).items()
        }

    torch._C._group_tensors_by_device_and_dtype = by_device
    in_optimizers.append(FakeTensor)
    in_utilities.append(FakeTensor)  # type: ignore[arg-type]
    fake: Any = FakeTensor
    fake.is_cuda = property(lambda self: self.fake_device.type == "cuda")
    fake.is_cpu = property(lambda self: self.fake_device.type == "cpu")
    _numbered()
    fake.data = property(torch.Tensor.data.__get__, _set_data)
    fake.to, fake.cuda, fake.cpu = _to, _cuda, lambda self, **kw: _to(self, "cpu")
    fake.get_device = lambda self: self.fake_device.index if self.fake_device.type == "cuda" else -1
    fake.type = _type
    fake.record_stream = lambda self, stream: None
    fake.pin_memory = lambda self, *_: self
    fake.is_pinned = lambda self, *_: False


def _set_data(self: Any, value: Any) -> None:
    """Give a tensor another's contents, and with them its device."""
    torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
    if isinstance(value, FakeTensor):
        self.fake_device = value.fake_device


def _numbered() -> None:
    """Let a device be a number, as in `model.to(local_rank)`: C++ would ask for an accelerator."""
    parse = torch._C._nn._parse_to

    def named(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = (torch.device("cuda", args[0]), *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return parse(*args, **kwargs)

    torch._C._nn._parse_to = named


def _guards() -> None:
    """Give the device that C++ is told the guard of meta tensors, and CUDA too where the build has none."""
    if torch.backends.cuda.is_built():
        torch._C._ensureCUDADeviceGuardSet()
    lib = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    table = (ctypes.c_void_p * 18).in_dll(lib, "_ZN3c104impl26device_guard_impl_registryE")
    for slot in (CUDA_SLOT, CPP_SLOT):
        table[slot] = table[slot] or table[META_SLOT]


def _never(*_: Any) -> Any:
    raise NotImplementedError("a fake tensor reached a kernel")


def cpp_device(tensor: Any) -> torch.device:
    """Return the device that C++ is told."""
    if not isinstance(tensor, FakeTensor):
        return tensor.device  # type: ignore[no-any-return]
    if tensor.fake_mode.in_kernel_invocation:
        return META
    device = tensor.fake_device
    return torch.device(CPP_TYPE, device.index or 0) if device.type == "cuda" else device


def renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the device that C++ was told given back its name."""
    device = kwargs.get("device")
    if device is not None and getattr(device, "type", "") == CPP_TYPE:
        return {**kwargs, "device": torch.device("cuda", device.index or 0)}
    return kwargs


def _lenient(common: Callable[..., Any]) -> Callable[..., Any]:
    """Return the search for a common device; a tensor on the host next to one on the GPU follows it."""

    def find(func: Any, flat_args: Any) -> Any:
        try:
            return common(func, flat_args)
        except RuntimeError:
            devices = [arg.fake_device for arg in flat_args if isinstance(arg, FakeTensor)]
            return next(device for device in devices if device.type == "cuda"), False

    return find


def whole(device: Any) -> torch.device:
    """Return a device with its index."""
    found = torch.device(device) if not isinstance(device, torch.device) else device
    if found.type == CPP_TYPE:
        return torch.device("cuda", found.index or 0)
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found


def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    target = moved(self, *args, **kwargs)
    return self if target is None else torch.ops.aten._to_copy.default(self, **target)


def moved(self: Any, *args: Any, copy: bool = False, **kwargs: Any) -> dict[str, object] | None:
    """Return where and as what `to` puts a tensor; nothing where it is that already."""
    if "other" in kwargs or (args and isinstance(args[0], torch.Tensor)):
        other: Any = kwargs.get("other", args[0] if args else None)
        device, dtype, layout = other.device, other.dtype, None
    else:
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
    device, dtype = whole(device or self.device), dtype or self.dtype
    same = layout is None or layout == torch.preserve_format or self.is_contiguous(memory_format=layout)
    if not copy and same and device == self.device and dtype == self.dtype:
        return None
    return {"dtype": dtype, "device": device, "memory_format": layout}


def _type(self: Any, *args: Any, **kwargs: Any) -> Any:
    found = torch.Tensor.type(self, *args, **kwargs)
    return found.replace(f"torch.{CPP_TYPE}.", "torch.cuda.") if isinstance(found, str) else found


def _cuda(self: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
    return _to(self, torch.device("cuda", device) if isinstance(device, int) else device or "cuda")
