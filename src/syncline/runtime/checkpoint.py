"""Checkpoints that are whole or not there: written aside, flushed, hashed, and put in place by one rename.

checkpoints = Checkpoints("run-7/checkpoints", keep=3)
step = checkpoints.restore(model, optimizer, handle)      # 0 where there is none yet
...
checkpoints.save(step, model, optimizer, handle)          # every rank calls it

A folder holds what all ranks share (model, optimizer), a file of each rank (what it owes the average, its random
numbers), and a manifest with the hash of each. A run with as many ranks goes on exactly where it was; one with another
number takes the mean of what all ranks owed. On several hosts the folder must be on storage that all of them see.

A method that talks less often (DiLoCo, say) is synchronised first, so that all ranks have the weights that are written;
its optimizer is each rank's own, and so in the rank's file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import CheckpointError
from syncline.runtime.periodic.wrapper import Wrapper

VERSION = 1
MANIFEST = "manifest.json"
SHARED = "shared.pt"
_PREFIX = "step-"
_UNFINISHED = ".unfinished-"


class Stateful(Protocol):
    """A handle of synchronisation, as far as checkpoints need it."""

    def state_dict(self, *, local: bool = False) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def busy(self) -> contextlib.AbstractContextManager[None]: ...


class Checkpoints:
    """The checkpoints of a run in one folder, the last `keep` of them."""

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint.", hint="Keep at least 1.")
        self.folder = Path(folder)
        self.keep = keep

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: Stateful | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the state after `step` steps and return its folder; every rank calls it."""
        rank, num_ranks = _place()
        with handle.busy() if handle is not None else contextlib.nullcontext():
            aside = self.folder / f"{_UNFINISHED}{step:010d}"
            if rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
            _meet()
            periodic = isinstance(optimizer, Wrapper)
            if isinstance(optimizer, Wrapper):
                optimizer.synchronize()
            own = {"random": _random_state(), "syncline": handle.state_dict(local=True) if handle else None}
            _write(aside / _rank_file(rank), {**own, "optimizer": optimizer.state_dict() if periodic else None})
            if rank == 0:
                shared = {"model": _bare(model).state_dict(), "optimizer": None if periodic else optimizer.state_dict()}
                _write(aside / SHARED, {**shared, "step": step, "extra": dict(extra or {})})
            _meet()
            if rank == 0:
                self._finish(aside, step, num_ranks)
            _meet()
        return self._path(step)

    def latest(self) -> Path | None:
        """Return the folder of the newest whole checkpoint, or None."""
        return next((path for path in reversed(self._paths()) if _is_whole(path)), None)

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, handle: Stateful | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Load the newest whole checkpoint and return its step and extra; (0, {}) where there is none."""
        path = self.latest()
        if path is None:
            return 0, {}
        rank, num_ranks = _place()
        saved_ranks = int(json.loads((path / MANIFEST).read_text("utf-8"))["num_ranks"])
        shared = _read(path / SHARED)
        _bare(model).load_state_dict(shared["model"])
        same = saved_ranks == num_ranks
        mine = [_read(path / _rank_file(r)) for r in ([rank] if same else range(saved_ranks))]
        own = shared["optimizer"] or mine[0 if same else rank % saved_ranks]["optimizer"]
        if not same and "exchange" in own:
            own["exchange"] = merged([one["optimizer"]["exchange"] for one in mine])
        optimizer.load_state_dict(own)
        if handle is not None and mine[0]["syncline"] is not None:
            handle.load_state_dict(mine[0]["syncline"] if same else merged([one["syncline"] for one in mine]))
        if same:
            _set_random_state(mine[0]["random"])
        return int(shared["step"]), dict(shared["extra"])

    def _finish(self, aside: Path, step: int, num_ranks: int) -> None:
        names = [SHARED, *(_rank_file(rank) for rank in range(num_ranks))]
        missing = [name for name in names if not (aside / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{missing[0]} of step {step} is not in {aside}.",
                hint="On several hosts the folder must be on storage that all of them see.",
            )
        hashes = {name: _hash(aside / name) for name in names}
        manifest = {"version": VERSION, "step": step, "num_ranks": num_ranks, "sha256": hashes}
        _flush_text(aside / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        _flush_folder(aside)
        place = self._path(step)
        if place.exists():
            shutil.rmtree(place)
        os.rename(aside, place)
        _flush_folder(self.folder)
        self._drop_old()

    def _drop_old(self) -> None:
        whole = [path for path in self._paths() if (path / MANIFEST).is_file()]
        for path in whole[: -self.keep]:
            # Out of the way by one rename: a folder that is half removed would still have its name.
            gone = path.with_name(f"{_UNFINISHED}old-{path.name}")
            os.rename(path, gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"{_PREFIX}*") if path.is_dir())

    def _path(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}{step:010d}"


def merged(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of synchronisation that any number of ranks can take over, from those of all ranks."""
    first = states[0]
    residuals = {}
    for name in first["residuals"]:
        total = torch.stack([state["residuals"][name] for state in states]).sum(0)
        residuals[name] = total / first["num_owing"]
    return {**first, "residuals": residuals, "local_to": -1}


def _is_whole(path: Path) -> bool:
    """Whether everything the manifest names is there, as it was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        files = manifest["sha256"]
        return manifest["version"] == VERSION and all(_hash(path / name) == value for name, value in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _write(path: Path, content: dict[str, Any]) -> None:
    with path.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def _flush_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _meet() -> None:
    if dist.is_initialized():
        dist.barrier()


def _bare(model: nn.Module) -> nn.Module:
    """Return the model without what wraps it, so that names do not depend on how it is trained."""
    inner: Any = getattr(model, "_orig_mod", model)
    wrapped = isinstance(inner, nn.parallel.DistributedDataParallel)
    found: nn.Module = inner.module if wrapped else inner
    return found


def _random_state() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
