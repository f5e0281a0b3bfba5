"""FSDP2 (`fully_shard`): its reduce-scatter sends encoded shards, and an all-reduce hook averages across replicas.

FSDP2 asks for both in the middle of backward and goes on with the result, so these run in the training thread; they
still use teams of their own. A reduce-scatter is the first half of the exchange: each rank gets the sum of its shard,
which is not encoded again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from syncline.errors import NonFiniteError
from syncline.runtime.averagers import Averagers
from syncline.runtime.bucket import Bucket, Layout
from syncline.runtime.links import GroupLinks
from syncline.runtime.scatter import ReduceScatter
from syncline.runtime.settings import Settings
from syncline.runtime.step import Step
from syncline.runtime.synchronizer import Synchronizer


class FsdpSynchronizer(Synchronizer):
    """Synchronises an FSDP2 model until it is closed; afterwards the model communicates as before."""

    def __init__(
        self, model: nn.Module, settings: Settings, links: GroupLinks, across: GroupLinks | None = None
    ) -> None:
        super().__init__(settings, links, "fsdp")
        self._across = None if across is None else Averagers(settings, across)
        self._step: Step | None = None
        self._modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._names = {id(module): name or "model" for name, module in model.named_modules()}
        self._hook = model.register_forward_pre_hook(self._forward)
        self._old: list[tuple[Any, Any]] = []
        for index, module in enumerate(self._modules):
            self._turn_on(index, module)

    def _turn_on(self, index: int, module: Any) -> None:
        group = module._get_fsdp_state()._fsdp_param_groups
        for part in group:
            self._old.append((part, part._reduce_scatter_comm))
        name = self._names[id(module)]
        if self._across is None:
            module.set_custom_reduce_scatter(_Scatter(self, index, name))
        else:
            module.set_all_reduce_hook(lambda output: self.all_reduce(index, name, output))

    def step(self) -> Step:
        """Return the step that is under way."""
        if self._step is None:
            self._step = self.open_step()
        return self._step

    def reduce_scatter(self, index: int, name: str, output: torch.Tensor, sent: torch.Tensor, mean: bool) -> None:
        """Leave the sum (or mean) over the ranks of this rank's shard in `output`."""
        step = self.step()
        bucket = self._buckets.get(index)
        layout = Layout((f"{name} ({self.num_ranks} shards)",), ((sent.numel(),),))
        if bucket is None or bucket.layout != layout or bucket.buffer.dtype != sent.dtype:
            bucket = self._buckets[index] = self._averagers.scatter(index, layout, sent)
        bucket.begin(sent, step)
        step.bucket_in(index, sent.nbytes, last=False)
        if bucket.staging is not None:
            bucket.staging.copy_(sent)
        scatter = bucket.scatter
        assert isinstance(scatter, ReduceScatter)
        trouble = scatter.run(step, 1.0 / self.num_ranks if mean else 1.0)
        if trouble is not None:
            self._not_finite(bucket, name, trouble.rank, step, output)
        else:
            output.copy_(scatter.own)
        step.wire_bytes += scatter.sent_bytes
        step.dense_bytes += (self.num_ranks - 1) * sent.nbytes // self.num_ranks
        step.bucket_out()

    def all_reduce(self, index: int, name: str, output: torch.Tensor) -> None:
        """Average a shard over its replicas, in place."""
        assert self._across is not None
        step = self.step()
        key = len(self._modules) + index
        bucket = self._buckets.get(key)
        layout = Layout((f"{name} (replicated shard)",), ((output.numel(),),))
        if bucket is None or bucket.layout != layout:
            bucket = self._buckets[key] = self._across.bucket(key, layout, output, self.settings.codec)
        bucket.begin(output, step)
        for piece in bucket.pieces:
            piece.send()
        for piece in bucket.pieces:
            piece.reduce()
            piece.collect()

    def close(self) -> None:
        """Turn synchronisation off: the model goes on as FSDP2 does."""
        for part, comm in self._old:
            part._reduce_scatter_comm = comm
            part._all_reduce_hook = None
        self._old.clear()
        self._hook.remove()
        super().close()

    def _forward(self, module: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            self.begin()
            self._step = None

    def _not_finite(self, bucket: Bucket, name: str, rank: int, step: Step, output: torch.Tensor) -> None:
        if self.settings.nan == "raise":
            raise NonFiniteError(
                f'a gradient of "{name}" on rank {rank} is not finite at step {step.number}.',
                where=f"rank {self.rank}, step {step.number}",
                hint='Find what overflows, or give nan="pass", which makes the whole shard NaN.',
            )
        output.fill_(float("nan"))


class _Scatter:
    """What FSDP2 calls in place of its reduce-scatter."""

    def __init__(self, owner: FsdpSynchronizer, index: int, name: str) -> None:
        self._owner, self._index, self._name = owner, index, name

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
        self._owner.reduce_scatter(self._index, self._name, output_tensor, input_tensor, mean)
