"""The optimizers that step a model, found as they do so, and what they keep made the same on every rank.

While ranks step alone each optimizer's momenta are its rank's own. Replicas that are to stay equal afterwards need
equal ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.wire.team import Team

MOST_ELEMENTS = 1 << 24
"""Of what is exchanged at once: all of it in one buffer would be twice the model."""
SHARDED = "ZeroRedundancyOptimizer"
Average = Callable[[torch.Tensor, Layout], object]


class Optimizers:
    """Optimizers with some of the given parameters, in the order of their first steps."""

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._seen: list[weakref.ref[Optimizer]] = []
        self._hook = register_optimizer_step_pre_hook(self._before)

    def remove(self) -> None:
        """Look for no more."""
        self._hook.remove()

    @property
    def are_whole(self) -> bool:
        """Whether there are any, and none steps a part of the parameters only, as those that shard their state do."""
        found = list(self._alive())
        return bool(found) and not any(type(optimizer).__name__ == SHARDED for optimizer in found)

    def unify(self, team: Team, average: Average) -> None:
        """Make what they keep the average of all ranks; counts are the largest. Every rank calls it."""
        kept = dict(self._kept())
        rows = exchange_json({name: _described(state[key]) for name, (state, key) in kept.items()}, team)
        everything = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
        tensors: dict[str, torch.Tensor] = {}
        for name in sorted(everything):
            found = everything[name]
            state, key = kept.get(name) or self._place(name)
            if found[0]["shape"] is None:
                _set_number(state, key, max(one["value"] for one in found))
                continue
            if key not in state:
                state[key] = torch.zeros(found[0]["shape"], device=self._device(name))
            tensors[name] = state[key]
            if sum(tensor.numel() for tensor in tensors.values()) >= MOST_ELEMENTS:
                _average(tensors, average)
                tensors = {}
        if tensors:
            _average(tensors, average)

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if any(seen() is optimizer for seen in self._seen):
            return
        if any(id(p) in self._names for group in optimizer.param_groups for p in group["params"]):
            self._seen.append(weakref.ref(optimizer))

    def _alive(self) -> Iterator[Optimizer]:
        return (optimizer for seen in self._seen if (optimizer := seen()) is not None)

    def _kept(self) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
        """Return where each number or tensor is kept, by a name that all ranks have for it."""
        for number, optimizer in enumerate(self._alive()):
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    if id(parameter) in self._names and _is_kept(value):
                        yield f"{number}|{key}|{self._names[id(parameter)]}", (state, key)

    def _place(self, name: str) -> tuple[dict[str, Any], str]:
        """Return where another rank keeps something that this one has nothing of yet."""
        number, key, _ = name.split("|", 2)
        return list(self._alive())[int(number)].state[self._parameter(name)], key

    def _parameter(self, name: str) -> torch.Tensor:
        number, _, wanted = name.split("|", 2)
        groups = list(self._alive())[int(number)].param_groups
        found: torch.Tensor = next(p for group in groups for p in group["params"] if self._names.get(id(p)) == wanted)
        return found

    def _device(self, name: str) -> torch.device:
        return self._parameter(name).device


def _is_kept(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.is_floating_point())


def _described(value: Any) -> dict[str, object]:
    """Return what other ranks need to know: a shape, or a number itself."""
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        return {"shape": list(value.shape), "value": 0}
    return {"shape": None, "value": value.item() if isinstance(value, torch.Tensor) else value}


def _set_number(state: dict[str, Any], key: str, value: float) -> None:
    kept = state.get(key)
    if isinstance(kept, torch.Tensor):
        kept.fill_(value)
    else:
        state[key] = value if kept is not None else torch.tensor(float(value))


def _average(tensors: Mapping[str, torch.Tensor], average: Average) -> None:
    layout = Layout(tuple(tensors), tuple(tuple(tensor.shape) for tensor in tensors.values()))
    flat = torch.cat([tensor.detach().reshape(-1).to(torch.float32) for tensor in tensors.values()])
    average(flat, layout)
    for tensor, part in zip(tensors.values(), torch.split(flat, list(layout.sizes)), strict=True):
        tensor.copy_(part.view_as(tensor))
