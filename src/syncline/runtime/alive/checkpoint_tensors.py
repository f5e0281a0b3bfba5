"""Tensors of a checkpoint in torch's distributed format: each rank writes its shards, any mesh reads them.

Where a tensor's parts lie is kept as JSON (`tensors.json`) in place of torch's pickled `.metadata`: reading
a checkpoint runs nothing that is in it. Tensors themselves are read with `weights_only=True`, as torch's reader does.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from syncline.errors import CheckpointError

TENSORS = "tensors.json"


def write_tensors(folder: Path, tensors: Mapping[str, torch.Tensor], group: Any) -> None:
    """Write named tensors, each rank its own shards and its share of what all have; every rank calls it."""
    _quiet()
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    with _own_failures():
        save(dict(tensors), storage_writer=_Writer(folder), planner=planner, process_group=group, **_alone(save, group))


def read_tensors(folder: Path, tensors: Mapping[str, torch.Tensor], group: Any) -> None:
    """Fill named tensors, or this rank's shards of them, from a checkpoint of any mesh; every rank calls it."""
    _quiet()
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    with _own_failures():
        load(dict(tensors), storage_reader=_Reader(folder), planner=planner, process_group=group, **_alone(load, group))


def _quiet() -> None:
    """Leave out what torch warns of itself: that one process saves alone; before 2.5, of its own storage."""
    warnings.filterwarnings("ignore", message="torch.distributed is .*unavailable or uninitialized")
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")


@contextmanager
def _own_failures() -> Iterator[None]:
    """Raise what went wrong on a rank in place of torch's CheckpointException, which no `except Exception` sees."""
    try:
        yield
    except CheckpointException as error:
        failures = [failure for failure, _ in error.failures.values()]
        full = (f for f in failures if isinstance(f, OSError) and f.errno in (errno.ENOSPC, errno.EDQUOT))
        raise next(full, failures[0]) from error


def _alone(call: Callable[..., Any], group: Any) -> dict[str, bool]:
    """Return the option that no other rank takes part; older versions of torch see that by themselves."""
    return {"no_dist": True} if group is None and "no_dist" in signature(call).parameters else {}


def shapes(folder: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the whole shape and the type of every tensor in a checkpoint."""
    found = json.loads((folder / TENSORS).read_text("utf-8"))["tensors"]
    return {name: (tuple(one["size"]), _dtype(one["dtype"])) for name, one in found.items()}


class _Writer(FileSystemWriter):
    def finish(self, metadata: Metadata, results: Any) -> None:
        """Keep where everything lies; the first rank calls it."""
        places = {result.index: result.storage_data for written in results for result in written}
        tensors = {}
        for name, one in metadata.state_dict_metadata.items():
            assert isinstance(one, TensorStorageMetadata), name
            chunks = [{"at": list(chunk.offsets), "size": list(chunk.sizes)} for chunk in one.chunks]
            tensors[name] = {"size": list(one.size), "dtype": str(one.properties.dtype), "chunks": chunks}
        stored = [
            [index.fqn, None if index.offset is None else list(index.offset), place.relative_path, place.offset,
             place.length]
            for index, place in places.items()
        ]  # fmt: skip
        with Path(self.path, TENSORS).open("w", encoding="utf-8") as file:
            json.dump({"tensors": tensors, "stored": stored}, file)
            file.flush()
            os.fsync(file.fileno())


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return where everything lies."""
        found = json.loads(Path(self.path, TENSORS).read_text("utf-8"))
        tensors: Any = {name: _described(one) for name, one in found["tensors"].items()}
        stored = {}
        for name, offset, file, at, length in found["stored"]:
            if Path(str(file)).name != file:
                raise CheckpointError(f"{self.path} names a file outside it: {file!r}.")
            place = None if offset is None else torch.Size(offset)
            stored[MetadataIndex(name, place)] = _StorageInfo(file, int(at), int(length))
        return Metadata(tensors, storage_data=stored, storage_meta=StorageMeta(load_id=self.load_id))


def _described(one: Mapping[str, Any]) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(chunk["at"]), torch.Size(chunk["size"])) for chunk in one["chunks"]]
    return TensorStorageMetadata(TensorProperties(_dtype(one["dtype"])), torch.Size(one["size"]), chunks)


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise CheckpointError(f"a checkpoint has tensors of the unknown type {text!r}.")
    return found
