"""A stand-in for Triton where it is not installed: its kernels are recorded by name and by what they touch."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from syncline.previewing.capture.log import Log

Record = Callable[[str, list[Any]], None]


class TritonKernel:
    """What `@triton.jit` makes of a function: `kernel[grid](...)` is recorded, not run."""

    def __init__(self, fn: Any, record: Record) -> None:
        self.fn, self.record = getattr(fn, "fn", fn), record
        self.__name__ = getattr(self.fn, "__name__", "kernel")
        self.__doc__, self.__module__ = getattr(fn, "__doc__", None), getattr(fn, "__module__", "")

    def __getitem__(self, grid: Any) -> Any:
        return self.run

    def run(self, *args: Any, **kwargs: Any) -> None:
        self.record(self.__name__, [t for t in (*args, *kwargs.values()) if isinstance(t, FakeTensor)])

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"the Triton kernel {self.__name__} runs on a GPU; a preview only records its launch")


class _Anything:
    """Answers for a name of Triton's language that only a kernel's own body uses."""

    def __init__(self, name: Any = "", *_: Any, **__: Any) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{self.name}.{name}")

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __or__(self, _: Any) -> Any:  # in type hints
        return self

    __ror__ = __or__

    def __instancecheck__(self, _: Any) -> bool:
        return False

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


class _Module(ModuleType):
    """Has every name that is asked of it; one with a capital is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        found = type(name, (_Anything,), {"__module__": self.__name__}) if name[0].isupper() else _Anything(whole)
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `triton` and all below it."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == "triton" or name.startswith("triton."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != "triton":
            return
        put: Any = module
        put.__version__ = "3.6.0"
        put.cdiv = lambda a, b: -(-a // b)
        put.next_power_of_2 = lambda n: 1 << max(int(n) - 1, 0).bit_length()
        put.jit = lambda fn=None, **_: self.kernel if fn is None else self.kernel(fn)
        put.autotune = put.heuristics = lambda *_, **__: self.kernel

    def kernel(self, fn: Any) -> TritonKernel:
        return TritonKernel(fn, self.record)


def prepare(log: Log, record: Record) -> None:
    """Let scripts import Triton where it is not installed."""
    if importlib.util.find_spec("triton") is None:

        def noted(name: str, tensors: list[Any]) -> None:
            log.note(f"the Triton kernel {name} was not run; what it writes is taken to be as large as it was")
            record(name, tensors)

        sys.meta_path.append(_Finder(noted))
