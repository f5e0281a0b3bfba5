"""The user's script, run as the launcher would run it, and watched: modules, optimizers, steps, attention, compile."""

from __future__ import annotations

import math
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
import torch.nn.attention.flex_attention
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode

from syncline.previewing.capture.device import whole
from syncline.previewing.capture.log import Log
from syncline.previewing.capture.memory import StorageLedger
from syncline.previewing.capture.recorder import Recorder
from syncline.previewing.capture.values import copied, remembered

FRAMEWORKS = ("megatron", "deepspeed", "torchtitan", "transformers", "accelerate", "lightning")
ASYNC = (
    "asynchronous tensor parallelism: collectives are not cut into parts that run beside their products, so that this "
    "step is an upper bound"
)
WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_forward_module.")


class StepCounter:
    """Counts steps: one ends when a model is called after an optimizer has stepped."""

    def __init__(
        self,
        log: Log,
        recorder: Recorder,
        memory: StorageLedger,
        wanted: int,
        begun: Callable[[int], None],
        done: Callable[[], None],
    ) -> None:
        self.log, self.recorder, self.memory, self.wanted = log, recorder, memory, wanted
        self.begun, self.done = begun, done  # with every step that begins, and after the last
        self.stepped = False
        self.most = 0  # parameters of the largest model
        self.began = -1  # the first message for the next step, which comes before its model is called
        self.names: dict[int, str] = {}
        self.roots: set[int] = set()

    def received(self) -> None:
        """A message is about to arrive: a pipeline stage's step begins with one."""
        if self.began < 0 and (self.stepped or not self.log.boundaries):
            self.began = len(self.log.ops)

    def prepare(self) -> None:
        hooks: Any = torch.nn.modules.module
        hooks.register_module_forward_pre_hook(self._enter)
        hooks.register_module_forward_hook(self._leave, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._before)
        optimizers.register_optimizer_step_post_hook(self._after)

    def _enter(self, module: Any, _: Any) -> None:
        outermost = not self.recorder.modules and torch.is_grad_enabled() and torch._C._current_autograd_node() is None
        if outermost and any(True for _ in module.parameters()):  # else it is no model: a transform of images, say
            self._root(module)
        name = self.names.get(id(module))
        if name is None:
            name = self.names[id(module)] = type(module).__name__
        self.recorder.modules.append(name)
        self.recorder.since[1] += 1

    def _leave(self, *_: Any) -> None:
        if self.recorder.modules:
            self.recorder.modules.pop()

    def _root(self, module: Any) -> None:
        if id(module) not in self.roots:  # it may have been called before, to be evaluated
            self.roots.add(id(module))
            untraced()
            for name, each in module.named_modules():
                for wrapper in WRAPPERS:
                    name = name.replace(wrapper, "")
                self.names[id(each)] = name or type(module).__name__
            described = _described(module)
            if int(str(described["parameters"])) > self.most:  # the largest of several is the model
                self.log.facts["model"], self.most = described, int(str(described["parameters"]))
            self.log.facts.setdefault("frameworks", [name for name in FRAMEWORKS if name in sys.modules])
            if getattr(sys.modules.get("torch._inductor.config"), "_micro_pipeline_tp", False):
                self.log.note(ASYNC)
            stage = getattr(
                module, "zero_optimization_stage", None
            )  # DeepSpeed's engine knows what traffic may not show
            if callable(stage):
                self.log.facts.setdefault("zero_stage", int(stage()))
            for parameter in module.parameters():
                self.memory.label(parameter, "parameters")
            for buffer in torch.nn.Module.buffers(module):  # Megatron's own DDP has a list of that name
                self.memory.label(buffer, "buffers")
        if self.stepped or not self.log.boundaries:
            self.stepped = False
            self.log.boundaries.append(len(self.log.ops) if self.began < 0 else self.began)
            self.began = -1
            self.begun(len(self.log.boundaries))
            if len(self.log.boundaries) > self.wanted:
                self.done()

    def _before(self, optimizer: Any, *_: Any) -> None:
        self.recorder.phase = "optimizer"
        self.log.facts.setdefault("optimizer", type(optimizer).__name__)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.memory.label(parameter, "parameters")
                if parameter.grad is not None:
                    self.memory.label(parameter.grad, "gradients")

    def _after(self, optimizer: Any, *_: Any) -> None:
        self.recorder.phase = "forward"
        self.stepped = True
        for state in list(optimizer.state.values()):
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    self.memory.label(value, "optimizer state")


def _described(module: Any) -> dict[str, object]:
    """Return the size of a model: parameters, the widths of its largest table and the repeats of its longest list."""
    # ZeRO-3 of DeepSpeed and the first FSDP leave a part of a parameter: its shape is beside it.
    sizes = {
        name: list(getattr(p, "ds_shape", getattr(p, "_unpadded_unsharded_size", p.shape)))
        for name, p in module.named_parameters()
    }
    lists = [len(m) for m in module.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.ModuleDict))]
    own = {
        name: getattr(p, "ds_tensor", getattr(p, "_local_tensor", p)).numel() for name, p in module.named_parameters()
    }
    total = sum(math.prod(size) for size in sizes.values())
    return {
        "class": type(module).__name__,
        "parameters": total,
        "layers": max(lists, default=0),
        "shapes": sizes,
        "own": own,
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()}),
    }


_INDEXES = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.clone)


class Functions(TorchFunctionMode):
    """Tensors that a script makes of numbers keep them; a random generator of a GPU that is not there is left out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        if func is torch.device and len(args) == 1 and type(args[0]) is int:
            return torch.device("cuda", args[0])
        if func is torch.tensor and isinstance(args[0], (list, tuple)):
            args = (_numbers(args[0]), *args[1:])
        if func in (torch.tensor, torch.as_tensor) and _on_gpu(kwargs.get("device")):
            made = func(*args, **{**kwargs, "device": None if isinstance(args[0], torch.Tensor) else "cpu"})
            return remembered(made.to(kwargs["device"]), args[0])  # in C++ it would be copied by a driver
        if func in (torch.tensor, torch.as_tensor):
            made = func(*args, **kwargs)
            return remembered(made, args[0]) if type(made) is FakeTensor else made
        if func in _INDEXES and type(args[0]) is FakeTensor and args[0].is_cuda:
            args = (args[0], _index(args[1], args[0].device), *args[2:])
        if func in _MOVES and type(args[0]) is torch.Tensor and args[0].dtype is torch.uint8:
            return args[0]  # the state of a generator, which is sent to other ranks and set again
        if func is torch.Tensor.__deepcopy__:
            copied(*args)
        generator = kwargs.get("generator")
        if generator is not None:
            kwargs = {**kwargs, "generator": None}
        return func(*args, **kwargs)


def _index(index: Any, device: Any) -> Any:
    """Return an index with its lists of numbers as tensors, which C++ would make on the device that is not there."""
    if isinstance(index, tuple):
        return tuple(_index(each, device) for each in index)
    if isinstance(index, range) or (isinstance(index, list) and index and _of_numbers(index)):
        return remembered(torch.tensor(list(index)).to(device), list(index))
    return index


def _of_numbers(values: list[Any]) -> bool:
    return all(_of_numbers(each) if isinstance(each, list) else isinstance(each, int) for each in values)


def _numbers(values: Any) -> Any:
    """Return nested lists with the tensors in them read."""
    if isinstance(values, (list, tuple)):
        return [_numbers(each) for each in values]
    return values.item() if isinstance(values, FakeTensor) and values.numel() == 1 else values


def _on_gpu(device: Any) -> bool:
    return device is not None and whole(device).type == "cuda"


def _counted(recorder: Recorder, depth: str, fn: Any) -> Any:
    """Return a function that counts, in an attribute of the recorder, how deep it is in calls of it."""

    @wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        setattr(recorder, depth, getattr(recorder, depth) + 1)
        try:
            return fn(*args, **kwargs)
        finally:
            setattr(recorder, depth, getattr(recorder, depth) - 1)

    return inner


def compiled(recorder: Recorder, log: Log) -> None:
    """Let `torch.compile` mark what it was given; its pointwise operations are priced as fused.

    What is scripted runs as it is written: TorchScript would compile what stands for torch's own functions.
    """
    torch.jit.script = lambda obj, *_, **__: obj  # type: ignore[assignment]
    mark = partial(_counted, recorder, "compiled")
    names = ["is_compiling", "is_dynamo_compiling"]  # code that branches on it is compiled as it then runs
    if torch.__version__ < "2.14":  # until then dynamo took what is compiled for what is exported
        names.append("is_exporting")
    for name in names:
        setattr(torch.compiler, name, lambda: recorder.compiled > 0)

    def compile(model: Any = None, **_: Any) -> Any:
        log.note(
            "torch.compile: run operator by operator; pointwise operations between matrix products priced as fused"
        )
        if model is None:
            return compile
        if isinstance(model, torch.nn.Module):
            model.forward = mark(model.forward)
            return model
        return mark(model)

    torch.compile = compile  # type: ignore[assignment]
    torch.nn.Module.compile = lambda self, *_, **__: setattr(self, "forward", mark(self.forward))  # type: ignore[assignment, method-assign]


def untraced() -> None:
    """Let transformers read the masks of fake tensors as it reads those of real ones.

    It takes them for tensors that are traced, whose values it must not read, and then builds every mask in full.
    """
    for name in ("transformers.utils.import_utils", "transformers.utils.generic"):
        if hasattr(sys.modules.get(name), "is_fake_tensor"):
            sys.modules[name].is_fake_tensor = lambda _: False  # type: ignore[attr-defined]


def unprofiled() -> None:
    """Leave out the marks for a profiler that FSDP makes around all it does: torch takes them for operators."""
    mark: Any = torch.autograd.profiler.record_function
    mark.__enter__, mark.__exit__ = lambda self: self, lambda *_: None


def backwards(recorder: Recorder) -> None:
    """Call all that the autograd engine runs the backward, its last callbacks too."""
    run_backward = torch.autograd._engine_run_backward

    def within(*args: Any, **kwargs: Any) -> Any:
        before, recorder.phase = recorder.phase, "backward"
        try:
            return run_backward(*args, **kwargs)
        finally:
            recorder.phase = before

    torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward = within


def shapes_only(recorder: Recorder) -> None:
    """Leave out what DTensor does to whole tensors to learn their shapes."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    quiet = partial(_counted, recorder, "quiet")
    for name, value in list(vars(ShardingPropagator).items()):
        if callable(value) and "propagate" in name:
            once = name in ("propagate_op_sharding_non_cached", "_propagate_tensor_meta_non_cached")
            setattr(ShardingPropagator, name, _remembered(quiet(value)) if once else quiet(value))
    from torch.distributed.tensor import _redistribute

    planned: Any = _redistribute
    planned._are_we_tracing = lambda: False  # as in a run: plans are kept by what they are asked of


def _remembered(fn: Any) -> Any:
    """Return a function of a schema that works out each once: torch does so in a run, and not in a fake mode."""
    seen: dict[Any, Any] = {}

    @wraps(fn)
    def inner(self: Any, schema: Any) -> Any:
        try:
            if schema in seen:
                return seen[schema]
        except TypeError:  # something in it has no number of its own
            return fn(self, schema)
        found = seen[schema] = fn(self, schema)
        return found

    return inner


def moved_modules(memory: StorageLedger) -> None:
    """Move modules by label: fake parameters cannot be swapped."""
    kept: dict[int, tuple[Any, Any]] = {}
    depth = [0]

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        depth[0] += 1
        try:
            return applied(self, fn, recurse)
        finally:
            depth[0] -= 1
            if not depth[0]:
                kept.clear()  # parameters that were tied have met; nothing else may keep the old ones

    def applied(self: Any, fn: Any, recurse: bool) -> Any:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for key, old in list(self._parameters.items()):
            if old is None:
                continue
            with torch.no_grad():
                new = fn(old)
            if new is old:
                continue
            if (
                type(old) is FakeTensor
                and type(new) is FakeTensor
                and new.dtype == old.dtype
                and new.stride() == old.stride()  # another layout (channels last) is another tensor
                and old.fake_device.type != "meta"
            ):
                old.fake_device = new.fake_device
                if new.fake_device.type == "cuda":
                    memory.seen(old, "", "", "parameters")
                continue
            if id(old) not in kept or kept[id(old)][0] is not old:
                kept[id(old)] = (old, torch.nn.Parameter(new, old.requires_grad))
            self._parameters[key] = kept[id(old)][1]
        for key, buffer in list(self._buffers.items()):
            if buffer is not None:
                self._buffers[key] = fn(buffer)
        return self

    torch.nn.Module._apply = apply  # type: ignore[method-assign, assignment]


def run(command: Mapping[str, Any]) -> None:
    """Run the script or module as `__main__`."""
    target = command["script"]
    if command["module"]:
        sys.argv = [target, *command["args"]]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    sys.argv = [target, *command["args"]]
    sys.path.insert(0, str(Path(target).resolve().parent))
    runpy.run_path(target, run_name="__main__")
