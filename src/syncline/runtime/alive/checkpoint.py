"""Checkpoints that are whole or not there: written aside, flushed, hashed, and put in place by one rename.

checkpoints = Checkpoints("run-7/checkpoints", keep=3)
step, extra = checkpoints.restore(model, optimizer, handle)      # (0, {}) where there is none yet
...
checkpoints.save(step, model, optimizer, handle)                 # every rank calls it

A folder holds the tensors of model and optimizer in torch's distributed format, each rank's shards written by itself,
so that any number of ranks and any mesh can read them; a file of each rank (what it owes the average, its random
numbers, where its data is); and a manifest with the hash of each file. A run with as many ranks on the same mesh goes
on exactly where it was; another takes the mean of what all ranks owed. On several hosts the folder must be on storage
that all of them see.

With `background=True` training waits only until everything is copied to host memory. A method that talks less often
(DiLoCo, say) is synchronised first, so that all ranks have the weights that are written; its optimizer is each rank's
own, and so in the rank's file.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import CheckpointError
from syncline.runtime.alive import checkpoint_first as first_version
from syncline.runtime.alive.checkpoint_files import (
    MANIFEST,
    flush_folder,
    flush_text,
    gather_json,
    hash_of,
    random_state,
    read,
    set_random_state,
    write,
)
from syncline.runtime.alive.checkpoint_loss import meet, naming_the_lost
from syncline.runtime.alive.checkpoint_state import (
    Tensors,
    check_names,
    copied,
    load_model,
    load_optimizer,
    mapped,
    model_state,
    optimizer_room,
    optimizer_state,
)
from syncline.runtime.alive.checkpoint_tensors import TENSORS, read_tensors, shapes, write_tensors
from syncline.runtime.periodic.wrapper import Wrapper
from syncline.runtime.span_writer import phase
from syncline.runtime.sync.geometry import Geometry, owed_by_all
from syncline.runtime.sync.shard.sharded import is_sharded

VERSION = 2
SHARED = "shared.pt"
_PREFIX = "step-"
_UNFINISHED = ".unfinished-"
FULL = "full"

log = logging.getLogger("syncline.checkpoint")


class Stateful(Protocol):
    """A handle of synchronisation, as far as checkpoints need it."""

    def state_dict(self, *, local: bool = False) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def busy(self) -> contextlib.AbstractContextManager[None]: ...


class Positioned(Protocol):
    """Data that knows where it is: torchdata's StatefulDataLoader, say."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class _Content:
    """Everything that one rank writes."""

    step: int
    tensors: Tensors
    own: dict[str, Any]
    shared: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run in one folder, the last `keep` of them."""

    def __init__(self, folder: str | Path, keep: int = 3, *, background: bool = False) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint.", hint="Keep at least 1.")
        self.folder = Path(folder)
        self.keep = keep
        self.background = background
        self._group: Any = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        atexit.register(self._at_exit)

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: Stateful | None = None,
        extra: Mapping[str, Any] | None = None,
        data: Positioned | None = None,
    ) -> Path | None:
        """Write the state after `step` steps and return its folder; every rank calls it.

        None where the disk is full, also without the oldest checkpoints: that is logged, and training goes on.
        """
        self.wait()
        rank, _ = _place()
        busy = handle.busy() if handle is not None else contextlib.nullcontext()
        with phase("checkpoint", rank), naming_the_lost(handle), busy:
            self._meet(handle)
            content = self._collect(step, model, optimizer, handle, extra, data)
            if not self.background:
                return self._write(content)
        tensors = copied(content.tensors)
        own, shared = (mapped(part, lambda one: one.detach().clone()) for part in (content.own, content.shared))
        self._thread = threading.Thread(
            target=self._write_aside,
            args=(_Content(step, tensors, own, shared),),
            name="syncline-checkpoint",
            daemon=True,
        )
        self._thread.start()
        return self._path(step)

    def wait(self) -> None:
        """Wait until what is written in the background is there, and raise what went wrong with it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def latest(self) -> Path | None:
        """Return the folder of the newest whole checkpoint, or None; this process alone looks."""
        self.wait()
        return next((path for path in reversed(self._paths()) if _is_whole(path, 0, 1)), None)

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: Stateful | None = None,
        data: Positioned | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Load the newest whole checkpoint and return its step and extra; (0, {}) where there is none.

        Every rank calls it. Ranks share the work of checking hashes, and all pass over a checkpoint that is torn.
        """
        self.wait()
        with naming_the_lost(handle):
            return self._restore(model, optimizer, handle, data)

    def _restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, handle: Stateful | None, data: Positioned | None
    ) -> tuple[int, dict[str, Any]]:
        path = self._newest()
        if path is None:
            return 0, {}
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest["version"] == first_version.VERSION:
            return first_version.restore(path, model, optimizer, handle, merged)
        shared = read(path / SHARED)
        self._load_tensors(path, model, optimizer, shared)
        rank, num_ranks = _place()
        saved_ranks = int(manifest["num_ranks"])
        if saved_ranks == num_ranks:
            mine = [read(path / _rank_file(rank))]
            set_random_state(mine[0]["random"])
        else:
            mine = [read(path / _rank_file(r)) for r in range(saved_ranks)]
        _load_wrapper(optimizer, mine, rank % saved_ranks, model)
        if handle is not None:
            self._load_handle(path, handle, mine, saved_ranks)
        if data is not None:
            _load_data(path, data, mine)
        return int(shared["step"]), dict(shared["extra"])

    # Writing

    def _collect(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: Stateful | None,
        extra: Mapping[str, Any] | None,
        data: Positioned | None,
    ) -> _Content:
        periodic = isinstance(optimizer, Wrapper)
        if isinstance(optimizer, Wrapper):
            optimizer.synchronize()
        own = {
            "random": random_state(),
            "syncline": handle.state_dict(local=True) if handle else None,
            "optimizer": optimizer.state_dict() if periodic else None,
            "data": None if data is None else data.state_dict(),
        }
        tensors, rest = model_state(model)
        shared: dict[str, Any] = {"step": step, "extra": dict(extra or {}), "model": rest, "optimizer": None}
        if not periodic:
            more, shared["optimizer"] = optimizer_state(model, optimizer)
            tensors |= more
        return _Content(step, tensors, own, shared)

    def _write_aside(self, content: _Content) -> None:
        try:
            self._write(content)
        except BaseException as failure:
            self._failure = failure

    def _write(self, content: _Content) -> Path | None:
        while True:
            problem = self._try(content)
            if not problem:
                return self._path(content.step)
            if not problem.startswith(FULL):
                raise CheckpointError(f"step {content.step} could not be written: {problem}", where=str(self.folder))
            if not self._make_room():
                log.error(
                    "The checkpoint of step %d was not written, as %s is full; training goes on, and the one before it "
                    "stays.", content.step, self.folder,
                )  # fmt: skip
                return None

    def _try(self, content: _Content) -> str:
        """Write everything; return what went wrong on any rank, the same on all, or nothing."""
        rank, num_ranks = _place()
        aside = self.folder / f"{_UNFINISHED}{content.step:010d}"

        def prepare() -> None:
            if rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)

        def write_own() -> None:
            write(aside / _rank_file(rank), content.own)
            if rank == 0:
                write(aside / SHARED, content.shared)

        hashes: dict[str, str] = {}

        def finish() -> None:
            if rank == 0:
                self._finish(aside, content.step, num_ranks, hashes)

        stages = [prepare, write_own, lambda: write_tensors(aside, content.tensors, self._group)]
        problem = ""
        for stage in stages:
            problem = problem or self._agreed(stage)
        if not problem:
            own = {path.name: hash_of(path) for path in sorted(aside.iterdir()) if _is_own(path.name, rank)}
            for row in gather_json(own, self._group):
                hashes |= row
            problem = self._agreed(finish)
        if problem and rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
        self._meet()
        return problem

    def _agreed(self, stage: Any) -> str:
        """Run a stage and return what went wrong with it on the first rank for which it did, the same on all."""
        problem = ""
        try:
            stage()
        except Exception as error:
            full = _is_full(error) or shutil.disk_usage(self._existing()).free < (1 << 16)
            problem = f"{FULL}: {error}" if full else f"{type(error).__name__}: {error}"
        rows = gather_json({"problem": problem[:2000]}, self._group)
        problems = [f"{row['problem']} (rank {rank})" for rank, row in enumerate(rows) if row["problem"]]
        return next((text for text in problems if text.startswith(FULL)), problems[0] if problems else "")

    def _existing(self) -> Path:
        return next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())

    def _make_room(self) -> bool:
        """Drop the oldest checkpoint, unless it is the only whole one; tell whether that was done."""
        rank, _ = _place()
        dropped = False
        if rank == 0:
            whole = [path for path in self._paths() if _is_whole(path, 0, 1)]
            if len(whole) > 1:
                _drop(whole[0])
                dropped = True
        return bool(gather_json({"dropped": dropped}, self._group)[0]["dropped"])

    def _finish(self, aside: Path, step: int, num_ranks: int, hashes: Mapping[str, str]) -> None:
        wanted = [SHARED, TENSORS, *(_rank_file(rank) for rank in range(num_ranks))]
        missing = [name for name in (*wanted, *hashes) if not (aside / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{missing[0]} of step {step} is not in {aside}.",
                hint="On several hosts the folder must be on storage that all of them see.",
            )
        manifest = {"version": VERSION, "step": step, "num_ranks": num_ranks, "sha256": dict(sorted(hashes.items()))}
        flush_text(aside / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        flush_folder(aside)
        place = self._path(step)
        if place.exists():
            _drop(place)
        os.rename(aside, place)
        flush_folder(self.folder)
        for path in [path for path in self._paths() if (path / MANIFEST).is_file()][: -self.keep]:
            _drop(path)

    # Reading

    def _newest(self) -> Path | None:
        """Return the newest checkpoint that is whole, the same on all ranks, which share the hashing."""
        rank, num_ranks = _place()
        self._meet()
        names = gather_json({"names": [path.name for path in self._paths()]}, self._group)[0]["names"]
        for name in reversed(names):
            path = self.folder / str(name)
            whole = gather_json({"whole": _is_whole(path, rank, num_ranks)}, self._group)
            if all(row["whole"] for row in whole):
                return path
            log.warning("%s is torn, and passed over.", path)
        return None

    def _load_tensors(
        self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, shared: Mapping[str, Any]
    ) -> None:
        known = shapes(path)
        tensors, _ = model_state(model)
        check_names(known, tensors, str(path))
        room = {} if shared["optimizer"] is None else optimizer_room(model, optimizer, known)
        read_tensors(path, {**tensors, **room}, self._group)
        load_model(model, tensors, shared["model"])
        if shared["optimizer"] is None:
            return
        if isinstance(optimizer, Wrapper):
            raise CheckpointError(
                f"the checkpoint is of a plain optimizer, and this is {type(optimizer).__name__}.", where=str(path),
                hint="Restore into the inner optimizer before you wrap it.",
            )  # fmt: skip
        load_optimizer(model, optimizer, room, shared["optimizer"])

    def _load_handle(self, path: Path, handle: Stateful, mine: Sequence[Mapping[str, Any]], saved_ranks: int) -> None:
        if mine[0]["syncline"] is None:
            return
        geometry = getattr(handle, "geometry", None)
        own = None if geometry is None else geometry.to_json()
        saved = mine[0]["syncline"].get("geometry")
        is_same = saved is None and own is None
        if saved is not None and own is not None:
            is_same = Geometry.from_json(saved) == Geometry.from_json(own)
        everywhere = all(row["same"] for row in gather_json({"same": is_same}, self._group))
        if len(mine) == 1 and everywhere:
            handle.load_state_dict(mine[0]["syncline"])
            return
        states = [read(path / _rank_file(r))["syncline"] for r in range(saved_ranks)]
        handle.load_state_dict(merged(states))

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"{_PREFIX}*") if path.is_dir())

    def _path(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}{step:010d}"

    def _meet(self, handle: Stateful | None = None) -> None:
        """Wait for every rank, in a group of its own: the run's may be NCCL, or busy while this writes."""
        if not dist.is_initialized():
            return
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        meet(self._group, handle)

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.wait()


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


def _load_wrapper(
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
            f"shards under {type(optimizer).__name__} cannot be dealt to another number of ranks.",
            hint=f"Resume with {len(mine)} ranks, or restore the model alone and wrap the optimizer anew.",
        )
    own = dict(mine[place]["optimizer"])
    if "exchange" in own:
        own["exchange"] = merged([one["optimizer"]["exchange"] for one in mine])
    optimizer.load_state_dict(own)


def _load_data(path: Path, data: Positioned, mine: Sequence[Mapping[str, Any]]) -> None:
    if mine[0]["data"] is None:
        raise CheckpointError(
            "there is no position of data in the checkpoint.", where=str(path), hint="Leave data= out."
        )
    if len(mine) > 1:
        raise CheckpointError(
            f"the data's position is that of {len(mine)} ranks, each of its own part.", where=str(path),
            hint="Leave data= out, and keep how many samples all ranks have seen in extra=.",
        )  # fmt: skip
    data.load_state_dict(dict(mine[0]["data"]))


def _is_whole(path: Path, rank: int, num_ranks: int) -> bool:
    """Whether this rank's share of what the manifest names is there, as it was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        files = sorted(manifest["sha256"].items())
        known = manifest["version"] in (VERSION, first_version.VERSION)
        return known and all(hash_of(path / name) == value for name, value in files[rank::num_ranks])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _drop(path: Path) -> None:
    """Remove a checkpoint: out of the way by one rename first, as half a folder would still have its name."""
    gone = path.with_name(f"{_UNFINISHED}old-{path.name}")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_full(error: BaseException) -> bool:
    failures = [failure for failure, _ in getattr(error, "failures", {}).values()]
    known = [error, *failures, *(one.__cause__ for one in (error, *failures) if one.__cause__)]
    return any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in known)


def _is_own(name: str, rank: int) -> bool:
    return name in (_rank_file(rank), *([SHARED, TENSORS] if rank == 0 else [])) or name.startswith(f"__{rank}_")


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
