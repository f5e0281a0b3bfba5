"""Models that FSDP2 shards: their mesh, their groups of parameters, and what FSDP2 calls in place of its collectives.

FSDP2 all-reduces across the replicas of a two-dimensional mesh itself, and before any hook. While such a model is
synchronised its groups are shown the sharded dimension of their mesh alone, so that FSDP2 leaves the replicas to the
hook that it has for them; parameters, and what is saved, keep the whole mesh. Only users of FSDP import torch's FSDP.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import SynchronizationError
from syncline.runtime.sync.axes import MeshAxes
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.geometry import Geometry, Sharding

FSDP_HOMES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
"""Where `fully_shard` is; torch before 2.6 has it in the second place only."""

OLDEST_TORCH = (2, 9)
"""The first torch whose FSDP2 lets both its collectives be replaced."""


def is_sharded(module: nn.Module) -> bool:
    """Tell whether `fully_shard` was applied to a module: who has not imported it has not called it."""
    known = (getattr(sys.modules.get(name), "FSDPModule", None) for name in FSDP_HOMES)
    return any(kind is not None and isinstance(module, kind) for kind in known)


@dataclass(frozen=True)
class ShardMesh:
    """The ranks a model is sharded over, and those that hold the same shard; None: every shard is there once."""

    shards: dist.ProcessGroup
    replicas: dist.ProcessGroup | None


def sharded_modules(model: nn.Module) -> list[tuple[str, Any]]:
    """Return the modules that hold sharded parameters, by name; a root over sharded children may hold none itself."""
    named = [(name or "model", module) for name, module in model.named_modules() if is_sharded(module)]
    return [(name, module) for name, module in named if param_groups(module)]


def check_replaceable(model: nn.Module) -> None:
    """Raise where FSDP2 does not let its collectives be replaced: that of an older torch."""
    for _, module in sharded_modules(model):
        for group in param_groups(module):
            if not (hasattr(group, "_reduce_scatter_comm") and hasattr(group, "_all_reduce_hook")):
                raise SynchronizationError(
                    f"FSDP2 of torch {torch.__version__} does not let its collectives be replaced.",
                    hint="Use torch {}.{} or newer, or DDP.".format(*OLDEST_TORCH),
                )


def param_groups(module: Any) -> list[Any]:
    """Return FSDP2's groups of the parameters that a module itself shards; torch before 2.11 has at most one."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        return [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    return list(groups)


def shard_mesh(model: nn.Module) -> ShardMesh:
    """Return the one mesh that all parts of a model are sharded over."""
    found: dict[tuple[Any, Any], str] = {}
    for name, module in sharded_modules(model):
        for group in param_groups(module):
            mesh = group.mesh_info
            shards, replicas = (getattr(mesh, f"{kind}_process_group", None) for kind in ("shard", "replicate"))
            if shards is None:
                raise SynchronizationError(
                    f'"{name}" is replicated and not sharded.', hint="Use DistributedDataParallel for replicas alone."
                )
            found.setdefault((shards, replicas), name)
    if not found:
        raise SynchronizationError("the model has no parameter to train.", hint="Apply fully_shard to its layers.")
    if len(found) > 1:
        first, second = [(name, dist.get_process_group_ranks(key[0])) for key, name in found.items()][:2]
        raise SynchronizationError(
            f'"{first[0]}" is sharded over ranks {_listed(first[1])} and "{second[0]}" over {_listed(second[1])}.',
            hint="Shard all parts of a model over one mesh, or give each part its own handle.",
        )
    shards, replicas = next(iter(found))
    return ShardMesh(shards, replicas)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


class ShardOwner(Protocol):
    """The handle that does the work."""

    def reduce_scatter(self, part: ShardPart, output: torch.Tensor, sent: torch.Tensor, mean: bool) -> None: ...

    def all_reduce(self, part: ShardPart, output: torch.Tensor) -> None: ...

    def wait_for(self, start: Callable[[], dist.Work]) -> None: ...


def shard_parts(owner: ShardOwner, model: Any) -> list[ShardPart]:
    """Return a part for every group of parameters in a model."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parts: list[ShardPart] = []
    for name, module in sharded_modules(model):
        for group in param_groups(module):
            parts.append(ShardPart(owner, len(parts), name, group, names))
    return parts


class ShardPart:
    """The parameters of one group, and FSDP2's reduce-scatter of their gradients."""

    def __init__(self, owner: ShardOwner, index: int, name: str, group: Any, names: dict[int, str]) -> None:
        self._owner, self.index, self.name, self._group = owner, index, name, group
        self._old: dict[str, object] = {}
        self.shardings: dict[str, Sharding] = {}
        for parameter in group.fsdp_params:
            known = names.get(id(parameter.sharded_param), f"{name}.{parameter._module_info.param_name}")
            dim = int(getattr(getattr(parameter, "fsdp_placement", None), "dim", 0))
            self.shardings[known] = Sharding(
                tuple(parameter._orig_size), dim, tuple(parameter.padded_sharded_param_size)
            )

    def turn_on(self, replicated: bool) -> None:
        """Take FSDP2's place, in its all-reduce across replicas or in its reduce-scatter."""
        if replicated:
            self._set("_all_reduce_hook", lambda output: self._owner.all_reduce(self, output))
            if getattr(self._group.mesh_info, "replicate_process_group", None) is not None:
                self._show_shards_alone()
        else:
            self._set("_reduce_scatter_comm", self)
        for name, default in (
            ("_all_gather_comm", "DefaultAllGather"),
            ("_reduce_scatter_comm", "DefaultReduceScatter"),
        ):
            collective = getattr(self._group, name, None)
            if type(collective).__name__ == default:
                self._set(name, _Watched(collective, self._owner.wait_for))

    def turn_off(self) -> None:
        """Give FSDP2 its place back."""
        for name, value in self._old.items():
            setattr(self._group, name, value)
        self._old.clear()

    def layout(self, num_elements: int, geometry: Geometry, axes: MeshAxes) -> Layout:
        """Return each rank's rows of each parameter as a matrix; one vector where a parameter had no gradient."""
        a_shard = sum(math.prod(one.padded) for one in self.shardings.values())
        count = num_elements // a_shard if a_shard else 0
        if count * a_shard != num_elements:
            if axes.groups:
                raise SynchronizationError(
                    f'a parameter of "{self.name}" got no gradient, and with the axis "{next(iter(axes.groups))}" of '
                    "its mesh it is not known which: those that the axis cuts are encoded apart.",
                    hint="Use every parameter in each step, or set requires_grad=False on those that are not trained.",
                )
            return Layout((f"{self.name} ({geometry.held})",), ((num_elements,),))
        names = tuple(geometry.name(name, k) for k in range(count) for name in self.shardings)
        cut = tuple(axes.cut(name) for name in self.shardings)
        return Layout.apart(names, tuple(one.padded for one in self.shardings.values()) * count, cut * count)

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return room for a reduce-scatter's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduce and scatter; done when it returns."""
        mean = op == dist.ReduceOp.AVG
        if not mean and op != dist.ReduceOp.SUM:
            raise SynchronizationError(
                f'FSDP2 asks for the gradients of "{self.name}" to be scaled while summed, which codecs cannot do.',
                hint="Leave set_gradient_divide_factor out, and scale the loss.",
            )
        self._owner.reduce_scatter(self, output_tensor, input_tensor, mean)

    def _set(self, name: str, value: Any) -> None:
        self._old.setdefault(name, getattr(self._group, name))
        setattr(self._group, name, value)

    def _show_shards_alone(self) -> None:
        whole = self._group.mesh_info
        # FSDP2's own class of what has shards alone, wherever this torch keeps it.
        shards = next(kind for kind in type(whole).__mro__ if kind.__name__ == "FSDPMeshInfo")(
            mesh=whole.mesh, shard_mesh_dim=whole.shard_mesh_dim
        )
        if self._group.post_forward_mesh_info == whole:
            self._set("post_forward_mesh_info", shards)
        self._set("mesh_info", shards)


class _Watched:
    """A collective of FSDP2's own, waited for by a handle that knows who is lost."""

    def __init__(self, collective: Any, wait: Callable[[Callable[[], dist.Work]], None]) -> None:
        self._collective, self._wait = collective, wait
        self.allocate = collective.allocate

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        *others: Any,
        async_op: bool = False,
        **named: Any,
    ) -> dist.Work | None:
        def start(is_async: bool) -> Any:
            return self._collective(output_tensor, input_tensor, group, *others, async_op=is_async, **named)

        if async_op or output_tensor.device.type != "cpu":
            work: dist.Work | None = start(async_op)
            return work
        self._wait(lambda: start(True))
        return None
