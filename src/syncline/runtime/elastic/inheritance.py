"""What a rank that comes back takes over from a peer: weights, the optimizer's state, and what else the script names.

The peer copies its state first and sends it from a thread of its own, so that it computes meanwhile. Each rank of a
sharded replica takes its own shard from the rank of another replica that holds the same.
"""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from syncline.errors import SynchronizationError
from syncline.runtime.alive.checkpoint_state import (
    Tensors,
    bare,
    load_model,
    load_optimizer,
    mapped,
    model_state,
    optimizer_state,
)
from syncline.runtime.sync.axes import local
from syncline.runtime.wire.team import Team

TAG = 1 << 30
PART_BYTES = 64 << 20


class Stateful(Protocol):
    """Whatever else must be the same on every rank: a scheduler of learning rates, say."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Estate:
    """The state of this rank's training, to be copied out and taken over."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, extra: Mapping[str, Stateful] | None = None
    ) -> None:
        self.model, self.optimizer, self.extra = model, optimizer, dict(extra or {})

    def copied(self, step: int) -> torch.Tensor:
        """Return everything as bytes."""
        tensors, rest = model_state(self.model)
        moments, options = optimizer_state(self.model, self.optimizer)
        room = io.BytesIO()
        state = {
            "step": step, "model": _local(tensors), "rest": rest, "optimizer": _local(moments), "options": options,
            "extra": {name: one.state_dict() for name, one in self.extra.items()},
        }  # fmt: skip
        torch.save(mapped(state, lambda tensor: tensor.detach().cpu()), room)
        return torch.frombuffer(bytearray(room.getbuffer()), dtype=torch.uint8)

    def settings(self) -> Callable[[], None]:
        """Return a call that puts schedules and the optimizer's settings back to what they are now."""
        groups = [{key: value for key, value in g.items() if key != "params"} for g in self.optimizer.param_groups]
        extra = {name: copy.deepcopy(one.state_dict()) for name, one in self.extra.items()}

        def put_back() -> None:
            for group, kept in zip(self.optimizer.param_groups, groups, strict=True):
                group.update(kept)
            for name, one in self.extra.items():
                one.load_state_dict(extra[name])

        return put_back

    @torch.no_grad()
    def take(self, data: torch.Tensor) -> int:
        """Take over what a peer copied, and return its step."""
        try:
            state = torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=True)
        except Exception as error:
            raise SynchronizationError(
                "the state that a peer sent cannot be read.",
                hint="States of schedulers and data must be numbers, texts, lists, dicts and tensors.",
                detail=str(error).split("\n")[0],
            ) from error
        own, _ = model_state(self.model)
        load_model(self.model, _like(state["model"], own.get), state["rest"])
        parameters = dict(bare(self.model).named_parameters(remove_duplicate=False))

        def owner(name: str) -> torch.Tensor | None:
            return parameters.get(name.removeprefix("optimizer.").rpartition("/")[0])

        load_optimizer(self.model, self.optimizer, _like(state["optimizer"], owner), state["options"])
        for name, one in self.extra.items():
            one.load_state_dict(state["extra"][name])
        return int(state["step"])


class Handover:
    """A copy of this rank's state on its way to others; training goes on meanwhile."""

    def __init__(self, data: torch.Tensor, team: Team, heirs: Sequence[int]) -> None:
        self._thread = threading.Thread(target=self._run, args=(data, team, heirs), daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until all of it is on its way; an heir that is lost meanwhile is not waited for longer than this."""
        self._thread.join(timeout_s)

    def _run(self, data: torch.Tensor, team: Team, heirs: Sequence[int]) -> None:
        try:
            size = torch.tensor([data.numel()])
            works = [team.send(size, heir, TAG) for heir in heirs]
            for part in torch.split(data, PART_BYTES):
                works += [team.send(part, heir, TAG + 1) for heir in heirs]
            for work in works:
                work.wait()
        except RuntimeError:
            return  # an heir is lost; everybody hears of that elsewhere


def inherit(team: Team, source: int) -> torch.Tensor:
    """Return what the source hands over."""
    size = torch.zeros(1, dtype=torch.int64)
    team.receive(size, source, TAG).wait()
    data = torch.empty(int(size), dtype=torch.uint8)
    for part in torch.split(data, PART_BYTES):
        team.receive(part, source, TAG + 1).wait()
    return data


def _local(tensors: Tensors) -> Tensors:
    return {name: local(tensor) for name, tensor in tensors.items()}


def _like(tensors: Tensors, owner: Callable[[str], torch.Tensor | None]) -> Tensors:
    """Return this rank's shards as parts of the whole tensors that they belong to."""
    found: Tensors = {}
    for name, tensor in tensors.items():
        own = owner(name)
        if own is not None and hasattr(own, "to_local") and local(own).shape == tensor.shape:
            found[name] = torch.zeros_like(own.detach(), dtype=tensor.dtype)
            local(found[name]).copy_(tensor)
        else:
            found[name] = tensor
    return found
