"""Files of a checkpoint: written through to the disk, hashed, read without running anything; and what ranks tell."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

MANIFEST = "manifest.json"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write values and tensors, flushed."""
    with path.open("wb") as file:
        torch.save(dict(content), file)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> dict[str, Any]:
    """Return values and tensors."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def flush_text(path: Path, text: str) -> None:
    """Write text, flushed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
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


def gather_json(value: Mapping[str, object], group: Any) -> list[dict[str, Any]]:
    """Return what every rank of a group on the CPU says, in their order; just this one's where there is no group."""
    if group is None:
        return [dict(value)]
    text = json.dumps(value).encode()
    size = dist.get_world_size(group)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(text)]), group=group)
    padded = torch.zeros(max(int(length) for length in lengths), dtype=torch.uint8)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    rooms = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(rooms, padded, group=group)
    return [json.loads(bytes(room[: int(n)].tolist())) for room, n in zip(rooms, lengths, strict=True)]


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
