"""Checkpoints that are whole or not there: written aside, flushed, hashed, and put in place by one rename.

checkpoints = Checkpoints("run-7/checkpoints", keep=3)
step, extra = checkpoints.restore(model, optimizer, handle)      # (0, {}) where there is none yet
...
checkpoints.save(step, model, optimizer, handle)                 # every rank calls it

A checkpoint is a folder: the tensors of model and optimizer in torch's distributed format, where each rank writes its
own shards, so that any number of ranks and any mesh can read them; one file per rank (error-feedback residuals, random
state, data position); and a manifest with a hash of every file. A run with as many ranks on the same mesh resumes
exactly; another takes the mean of all ranks' residuals. With several hosts the folder must be on shared storage.

With `background=True` training waits only for the copy to host memory; the process ends when all is written. DiLoCo is
synchronised first, so that all ranks have the weights that are written; its inner optimizer differs from rank to rank
and is in the rank's file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import CheckpointError
from syncline.runtime.alive.checkpoint_folder import (
    MANIFEST,
    SHARED,
    CheckpointFolder,
    damage,
    hash_of,
    is_own,
    rank_file,
    read,
    write,
)
from syncline.runtime.alive.checkpoint_loss import gather_json, group_of_all, meet, naming_the_lost
from syncline.runtime.alive.checkpoint_resume import (
    CheckpointHandle,
    PositionedData,
    load_data,
    load_handle,
    load_wrapper,
)
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
    random_state,
    set_random_state,
)
from syncline.runtime.alive.checkpoint_tensors import read_tensors, shapes, write_tensors
from syncline.runtime.periodic.wrapper import Wrapper
from syncline.runtime.span_writer import phase

FULL = "full"

log = logging.getLogger("syncline.checkpoint")


@dataclass(frozen=True)
class _Content:
    """Everything that one rank writes."""

    step: int
    tensors: Tensors
    own: dict[str, Any]
    shared: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run in one folder, the last `keep` of them.

    Where no handle is passed that hears of lost ranks, those that come first wait `wait_s` for the others.
    """

    def __init__(self, folder: str | Path, keep: int = 3, *, background: bool = False, wait_s: float = 600.0) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint.", hint="Keep at least 1.")
        self.folder = Path(folder)
        self._kept = CheckpointFolder(self.folder, keep)
        self.background = background
        self.wait_s = wait_s
        self._group: Any = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._written: Path | None = None

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: CheckpointHandle | None = None,
        extra: Mapping[str, Any] | None = None,
        data: PositionedData | None = None,
    ) -> Path | None:
        """Write the state after `step` steps and return its folder; every rank calls it.

        None where the disk is full, also without the oldest checkpoints: that is logged, and training goes on. None in
        the background too, where nothing is written yet: `wait` returns the folder.
        """
        self.wait()
        rank, _ = _place()
        busy = handle.busy() if handle is not None else contextlib.nullcontext()
        with phase("checkpoint", rank), naming_the_lost(handle), busy:
            self._meet(handle)
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
            content = _Content(step, tensors, own, shared)
            if not self.background:
                return self._write(content)
        tensors = copied(content.tensors)
        own, shared = (mapped(part, lambda one: one.detach().clone()) for part in (content.own, content.shared))
        # No daemon: a process, one of multiprocessing too, ends when its checkpoint is there.
        content = _Content(step, tensors, own, shared)
        self._thread = threading.Thread(target=self._write_aside, args=(content,), name="syncline-checkpoint")
        self._thread.start()
        return None

    def wait(self) -> Path | None:
        """Wait until what is written in the background is there; return its folder, or raise what went wrong with it.

        None where nothing was, or the disk was full.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        written, self._written = self._written, None
        if failure is not None:
            raise failure
        return written

    def latest(self) -> Path | None:
        """Return the folder of the newest whole checkpoint, or None; this process alone looks."""
        self.wait()
        return next((path for path in reversed(self._kept.checkpoints()) if not damage(path, 0, 1)), None)

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        handle: CheckpointHandle | None = None,
        data: PositionedData | None = None,
        *,
        start_afresh: bool = False,
    ) -> tuple[int, dict[str, Any]]:
        """Load the newest whole checkpoint and return its step and extra; (0, {}) where none was ever written.

        Every rank calls it. Ranks share the work of checking hashes, and all pass over a checkpoint that is damaged.
        Where none is whole that is an error, unless the run may `start_afresh`.
        """
        self.wait()
        with naming_the_lost(handle):
            path = self._newest(handle, start_afresh)
            if path is None:
                return 0, {}
            manifest = json.loads((path / MANIFEST).read_text("utf-8"))
            shared = read(path / SHARED)
            self._load_tensors(path, model, optimizer, shared)
            rank, num_ranks = _place()
            saved_ranks = int(manifest["num_ranks"])
            if saved_ranks == num_ranks:
                mine = [read(path / rank_file(rank))]
                set_random_state(mine[0]["random"])
            else:
                mine = [read(path / rank_file(r)) for r in range(saved_ranks)]
            load_wrapper(optimizer, mine, rank % saved_ranks, model)
            if handle is not None:
                load_handle(path, handle, mine, saved_ranks, self._group)
            if data is not None:
                load_data(path, data, mine)
            return int(shared["step"]), dict(shared["extra"])

    # Writing

    def _write_aside(self, content: _Content) -> None:
        try:
            self._written = self._write(content)
        except BaseException as failure:
            self._failure = failure
            hint = "Call wait() before destroy_process_group()."
            log.error("The checkpoint of step %d was not written: %s %s", content.step, failure, hint)

    def _write(self, content: _Content) -> Path | None:
        while True:
            problem = self._try(content)
            if not problem:
                return self._kept.place(content.step)
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
        aside = self._kept.aside(content.step)

        def prepare() -> None:
            if rank == 0:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)

        def write_own() -> None:
            write(aside / rank_file(rank), content.own)
            if rank == 0:
                write(aside / SHARED, content.shared)

        hashes: dict[str, str] = {}

        def finish() -> None:
            if rank == 0:
                self._kept.finish(content.step, num_ranks, hashes)

        stages = [prepare, write_own, lambda: write_tensors(aside, content.tensors, self._group)]
        problem = ""
        for stage in stages:
            problem = problem or self._agreed(stage)
        if not problem:
            own = {path.name: hash_of(path) for path in sorted(aside.iterdir()) if is_own(path.name, rank)}
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
            problem = f"{FULL}: {error}" if self._kept.is_full(error) else f"{type(error).__name__}: {error}"
        rows = gather_json({"problem": problem[:2000]}, self._group)
        problems = [f"{row['problem']} (rank {rank})" for rank, row in enumerate(rows) if row["problem"]]
        return next((text for text in problems if text.startswith(FULL)), problems[0] if problems else "")

    def _make_room(self) -> bool:
        """Drop the oldest checkpoint, unless it is the only whole one; tell whether that was done."""
        rank, _ = _place()
        dropped = rank == 0 and self._kept.make_room()
        return bool(gather_json({"dropped": dropped}, self._group)[0]["dropped"])

    # Reading

    def _newest(self, handle: CheckpointHandle | None, start_afresh: bool) -> Path | None:
        """Return the newest checkpoint that is whole, the same on all ranks, which share the hashing."""
        rank, num_ranks = _place()
        self._meet(handle)
        names = gather_json({"names": [path.name for path in self._kept.checkpoints()]}, self._group)[0]["names"]
        newest_damage = ""
        for name in reversed(names):
            path = self.folder / str(name)
            rows = gather_json({"damage": damage(path, rank, num_ranks)}, self._group)
            found = next((str(row["damage"]) for row in rows if row["damage"]), "")
            if not found:
                return path
            log.warning("%s is damaged and was skipped: %s.", path, found)
            newest_damage = newest_damage or f"{path.name}: {found}"
        if newest_damage and not start_afresh:
            raise CheckpointError(
                "the only checkpoint is damaged." if len(names) == 1 else f"all {len(names)} checkpoints are damaged.",
                where=str(self.folder), detail=f"{newest_damage}.",
                hint="Bring the file back, or pass start_afresh=True to restore() to begin at step 0.",
            )  # fmt: skip
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
                f"the checkpoint was written with a plain optimizer, and this is {type(optimizer).__name__}.",
                where=str(path), hint="Restore into the inner optimizer before you wrap it.",
            )  # fmt: skip
        load_optimizer(model, optimizer, room, shared["optimizer"])

    def _meet(self, handle: CheckpointHandle | None = None) -> None:
        """Wait for every rank, in a group of its own: the run's may be NCCL, or busy while this writes."""
        if not dist.is_initialized():
            return
        if self._group is None:
            self._group = group_of_all(handle, self.wait_s)
        meet(self._group, handle)


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
