"""What a rank takes over from a checkpoint: what is owed to the average, a wrapped optimizer, where its data is.

A run with as many ranks on the same mesh goes on exactly where it was; another takes the mean of what all ranks owed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from syncline.errors import CheckpointError
from syncline.runtime.alive.checkpoint_folder import rank_file, read
from syncline.runtime.alive.checkpoint_loss import gather_json
from syncline.runtime.sync.geometry import Geometry, owed_by_all
from syncline.runtime.sync.sharded import is_sharded


class CheckpointHandle(Protocol):
    """A handle of synchronisation, as far as checkpoints need it."""

    def state_dict(self, *, local: bool = False) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def busy(self) -> contextlib.AbstractContextManager[None]: ...


class PositionedData(Protocol):
    """Data that knows where it is: torchdata's StatefulDataLoader, say."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def load_handle(
    path: Path, handle: CheckpointHandle, mine: Sequence[Mapping[str, Any]], saved_ranks: int, group: Any
) -> None:
    """Take over what ranks owed: a rank's own, or the mean of all where ranks or mesh have changed."""
    if mine[0]["syncline"] is None:
        return
    geometry = getattr(handle, "geometry", None)
    own = None if geometry is None else geometry.to_json()
    saved = mine[0]["syncline"].get("geometry")
    is_same = saved is None and own is None
    if saved is not None and own is not None:
        is_same = Geometry.from_json(saved) == Geometry.from_json(own)
    everywhere = all(row["same"] for row in gather_json({"same": is_same}, group))
    if len(mine) == 1 and everywhere:
        handle.load_state_dict(mine[0]["syncline"])
        return
    states = [read(path / rank_file(r))["syncline"] for r in range(saved_ranks)]
    handle.load_state_dict(merged(states))


def load_wrapper(
    optimizer: torch.optim.Optimizer, mine: Sequence[Mapping[str, Any]], place: int, model: nn.Module
) -> None:
    """Take over the state of a method that talks less often: a rank's own, or that of one whose place it has now."""
    if mine[0]["optimizer"] is None:
        return
    if len(mine) == 1:
        optimizer.load_state_dict(mine[0]["optimizer"])
        return
    if is_sharded(model):
        raise CheckpointError(
            f"shards under {type(optimizer).__name__} cannot be spread over another number of ranks.",
            hint=f"Resume with {len(mine)} ranks, or restore the model alone and wrap the optimizer anew.",
        )
    own = dict(mine[place]["optimizer"])
    if "exchange" in own:
        own["exchange"] = merged([one["optimizer"]["exchange"] for one in mine])
    optimizer.load_state_dict(own)


def load_data(path: Path, data: PositionedData, mine: Sequence[Mapping[str, Any]]) -> None:
    """Put data where it was when the checkpoint was written."""
    if mine[0]["data"] is None:
        raise CheckpointError("the checkpoint has no data position.", where=str(path), hint="Leave data= out.")
    if len(mine) > 1:
        raise CheckpointError(
            f"the data's position is that of {len(mine)} ranks, each of its own part.", where=str(path),
            hint="Leave data= out, and keep how many samples all ranks have seen in extra=.",
        )  # fmt: skip
    data.load_state_dict(dict(mine[0]["data"]))


def merged(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of synchronisation that any number of ranks can take over, from those of all ranks."""
    first = {key: value for key, value in states[0].items() if key != "geometry"}
    if "geometry" in states[0]:
        ranks = [(Geometry.from_json(state["geometry"]), state["residuals"]) for state in states]
        return {**first, "residuals": owed_by_all(ranks, int(first["num_owing"])), "local_to": -1}
    residuals = {}
    for name in first["residuals"]:
        total = torch.stack([state["residuals"][name] for state in states]).sum(0)
        residuals[name] = total / first["num_owing"]
    return {**first, "residuals": residuals, "local_to": -1}
