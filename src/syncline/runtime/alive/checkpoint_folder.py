"""The folder of a run's checkpoints: files flushed and hashed, each checkpoint put in place by one rename."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from syncline.errors import CheckpointError
from syncline.runtime.alive.checkpoint_tensors import TENSORS

MANIFEST = "manifest.json"
VERSION = 2
SHARED = "shared.pt"
_PREFIX = "step-"
_UNFINISHED = ".unfinished-"
_FULL_BYTES = 1 << 16


class CheckpointFolder:
    """The whole checkpoints of a run, the last `keep` of them, and what is being written beside them."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self.keep = keep

    def checkpoints(self) -> list[Path]:
        """Return the folder of every checkpoint, whole or not, the oldest first."""
        return sorted(path for path in self.path.glob(f"{_PREFIX}*") if path.is_dir())

    def place(self, step: int) -> Path:
        """Return where the checkpoint of a step lies once it is whole."""
        return self.path / f"{_PREFIX}{step:010d}"

    def aside(self, step: int) -> Path:
        """Return where the checkpoint of a step is written."""
        return self.path / f"{_UNFINISHED}{step:010d}"

    def is_full(self, error: BaseException) -> bool:
        """Whether an error came of a disk without room."""
        existing = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        return _says_full(error) or shutil.disk_usage(existing).free < _FULL_BYTES

    def make_room(self) -> bool:
        """Drop the oldest checkpoint, unless it is the only whole one; tell whether that was done."""
        whole = [path for path in self.checkpoints() if not damage(path, 0, 1)]
        if len(whole) > 1:
            _drop(whole[0])
        return len(whole) > 1

    def finish(self, step: int, num_ranks: int, hashes: Mapping[str, str]) -> None:
        """Put what was written aside in its place, with a manifest, and drop what is too old."""
        aside = self.aside(step)
        wanted = [SHARED, TENSORS, *(rank_file(rank) for rank in range(num_ranks))]
        missing = [name for name in (*wanted, *hashes) if not (aside / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{missing[0]} of step {step} is not in {aside}.",
                hint="On several hosts the folder must be on storage that all of them see.",
            )
        manifest = {"version": VERSION, "step": step, "num_ranks": num_ranks, "sha256": dict(sorted(hashes.items()))}
        flush_text(aside / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        flush_folder(aside)
        place = self.place(step)
        if place.exists():
            _drop(place)
        os.rename(aside, place)
        flush_folder(self.path)
        # What has a later step was passed over as damaged, or is from before a fresh start: it takes no one's place.
        earlier = [path for path in self.checkpoints() if path <= place and (path / MANIFEST).is_file()]
        for path in earlier[: -self.keep]:
            _drop(path)


def damage(path: Path, rank: int, num_ranks: int) -> str:
    """Return what is wrong with this rank's share of what the manifest names, or nothing where it is as written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest["version"] != VERSION:
            return f"it is of version {manifest['version']}, and this syncline reads version {VERSION}"
        files = sorted(manifest["sha256"].items())
    except OSError as error:
        return f"{MANIFEST}: {error.strerror}"
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"{MANIFEST} is not as it was written"
    return next((wrong for name, value in files[rank::num_ranks] if (wrong := _damage_of(path / name, value))), "")


def _damage_of(path: Path, hash_written: str) -> str:
    try:
        return "" if hash_of(path) == hash_written else f"{path.name} is not as it was written"
    except OSError as error:
        return f"{path.name}: {error.strerror}"


def is_own(name: str, rank: int) -> bool:
    """Whether a rank writes a file, and so hashes it."""
    return name in (rank_file(rank), *([SHARED, TENSORS] if rank == 0 else [])) or name.startswith(f"__{rank}_")


def rank_file(rank: int) -> str:
    """Return the name of what a rank writes for itself."""
    return f"rank-{rank:05d}.pt"


def _drop(path: Path) -> None:
    """Remove a checkpoint: out of the way by one rename first, as half a folder would still have its name."""
    gone = path.with_name(f"{_UNFINISHED}old-{path.name}")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _says_full(error: BaseException) -> bool:
    failures = [failure for failure, _ in getattr(error, "failures", {}).values()]
    known = [error, *failures, *(one.__cause__ for one in (error, *failures) if one.__cause__)]
    return any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in known)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write values and tensors, flushed."""
    with path.open("wb") as file:
        torch.save(dict(content), file)
        _flush(file)


def read(path: Path) -> dict[str, Any]:
    """Return values and tensors."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def flush_text(path: Path, text: str) -> None:
    """Write text, flushed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        _flush(file)


def _flush(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Make sure that a folder's names are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_of(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
