"""The state of model and optimizer by parameter names: tensors apart, which may be shards, and all else.

Names do not depend on what wraps the model (DDP, a compiler), nor on the order of parameters in the optimizer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from syncline.errors import CheckpointError

Tensors = dict[str, torch.Tensor]


def bare(model: nn.Module) -> nn.Module:
    """Return the model without what wraps it."""
    inner: Any = getattr(model, "_orig_mod", model)
    wrapped = isinstance(inner, nn.parallel.DistributedDataParallel)
    found: nn.Module = inner.module if wrapped else inner
    return getattr(found, "_orig_mod", found)


def model_state(model: nn.Module) -> tuple[Tensors, dict[str, object]]:
    """Return a model's tensors, by names that begin with "model.", and what else it keeps."""
    tensors: Tensors = {}
    rest: dict[str, object] = {}
    for name, value in bare(model).state_dict().items():
        if isinstance(value, torch.Tensor):
            tensors[f"model.{name}"] = value
        else:
            rest[name] = value
    return tensors, rest


def load_model(model: nn.Module, tensors: Mapping[str, torch.Tensor], rest: Mapping[str, Any]) -> None:
    """Take over what `model_state` returned."""
    own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    bare(model).load_state_dict({**own, **rest})


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, object]]:
    """Return an optimizer's tensors, by names that begin with "optimizer.", and what else it keeps."""
    names = _names(model, optimizer)
    tensors: Tensors = {}
    rest: dict[str, dict[str, object]] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{names[parameter]}/{key}"] = value
            else:
                rest.setdefault(names[parameter], {})[key] = value
    groups = [{**group, "params": [names[p] for p in group["params"]]} for group in optimizer.param_groups]
    return tensors, {"state": rest, "groups": groups}


def optimizer_room(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
) -> Tensors:
    """Return tensors to read an optimizer's saved ones into: sharded as its parameter where they are as large."""
    parameters = {name: parameter for parameter, name in _names(model, optimizer).items()}
    room: Tensors = {}
    for name, (size, dtype) in saved.items():
        if not name.startswith("optimizer."):
            continue
        owner = parameters.get(name.removeprefix("optimizer.").rpartition("/")[0])
        if owner is None:
            continue
        same = tuple(owner.shape) == size
        room[name] = torch.zeros_like(owner, dtype=dtype) if same else torch.zeros(size, dtype=dtype)
    return room


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], rest: Mapping[str, Any]
) -> None:
    """Take over what `optimizer_state` returned, for the same parameters in any order."""
    names = _names(model, optimizer)
    places = {names[p]: k for k, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    options = {name: group for group in rest["groups"] for name in group["params"]}
    state: dict[int, dict[str, object]] = {places[name]: dict(kept) for name, kept in rest["state"].items()}
    for name, value in tensors.items():
        owner, _, key = name.removeprefix("optimizer.").rpartition("/")
        state.setdefault(places[owner], {})[key] = value
    groups, first = [], 0
    for group in optimizer.param_groups:
        count = len(group["params"])
        known = options.get(names[group["params"][0]], {}) if count else {}
        own = {**group, **{key: value for key, value in known.items() if key != "params"}}
        groups.append({**own, "params": list(range(first, first + count))})
        first += count
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def check_names(saved: Mapping[str, Any], wanted: Mapping[str, torch.Tensor], where: str) -> None:
    """Raise where a model and a saved one differ, with the first name that does."""
    have = {name: size for name, (size, _) in saved.items() if name.startswith("model.")}
    for name, value in wanted.items():
        shown = name.removeprefix("model.")
        if name not in have:
            raise CheckpointError(f'"{shown}" of this model is not in the checkpoint.', where=where)
        if have[name] != tuple(value.shape):
            raise CheckpointError(
                f'"{shown}" has shape {list(have[name])} in the checkpoint and {list(value.shape)} in this model.',
                where=where,
            )
    more = sorted(set(have) - set(wanted))
    if more:
        shown = more[0].removeprefix("model.")
        raise CheckpointError(f'the checkpoint has "{shown}", which this model does not have.', where=where)


def copied(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the tensors, or this rank's shards of them, in host memory of their own."""
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return nested dicts and lists with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(one, change) for one in value)
    return value


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, str]:
    known: dict[int, str] = {id(p): name for name, p in bare(model).named_parameters(remove_duplicate=False)}
    return {parameter: known.get(id(parameter), f"({k})") for k, parameter in enumerate(_parameters(optimizer))}


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def random_state() -> dict[str, object]:
    """Return where this process's random numbers are."""
    version, numbers, gauss = random.getstate()
    state: dict[str, object] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Go on with random numbers from there."""
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
