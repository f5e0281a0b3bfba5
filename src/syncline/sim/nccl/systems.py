"""Which system a row was measured on: a systems file maps text of a row to a cluster description and its software."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from syncline.errors import DescriptionError, SynclineError
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.describe import from_spec
from syncline.sim.nccl.guess import guess
from syncline.sim.nccl.measured import Row, read_text
from syncline.sim.nccl.system import NcclSystem

_KEYS = {"system", "notes", "cluster", "software", "calibrate", "skip", "remark"}


@dataclass(frozen=True)
class Entry:
    """One entry of a systems file: which rows it speaks of, and what they ran on."""

    system: str
    notes: str = ""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    calibrate: bool = True
    skip: str = ""
    remark: str = ""

    def matches(self, row: Row) -> bool:
        """Say whether this entry speaks of a row."""
        if self.system.lower() not in row.system.lower():
            return False
        return not self.notes or re.search(self.notes, f"{row.notes} {row.source}") is not None

    @cached_property
    def spec(self) -> ClusterSpec:
        """The cluster description, validated once."""
        data = {"hosts": 1, **self.cluster}
        try:
            return ClusterSpec.model_validate(data)
        except ValidationError as error:
            raise DescriptionError(f'cluster of "{self.system}": {error.errors()[0]["msg"]}.') from None


@dataclass(frozen=True)
class Described:
    """A row's system, how it is known, and whether its rows may calibrate."""

    system: NcclSystem
    remark: str = ""
    guessed: bool = False
    calibrate: bool = True


class Systems:
    """The entries of a systems file, asked row by row."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self._cache: dict[tuple[Any, ...], Described] = {}

    def of(self, row: Row) -> Described:
        """Return the system of a row, or raise a SynclineError that says why it cannot be modelled."""
        number = next((i for i, e in enumerate(self.entries) if e.matches(row)), -1)
        key = (number, row.num_hosts, row.num_gpus, "" if number >= 0 else row.system + row.notes)
        if key not in self._cache:
            self._cache[key] = self._describe(number, row)
        return self._cache[key]

    def _describe(self, number: int, row: Row) -> Described:
        if row.num_hosts < 1 or row.num_gpus % row.num_hosts:
            raise DescriptionError(f"{row.num_gpus} GPUs do not divide over {row.num_hosts} hosts.")
        gpus = row.num_gpus // row.num_hosts
        if number < 0:
            return Described(
                guess(row.system, row.notes, row.num_hosts, gpus), "described by guess from its text", True
            )
        entry = self.entries[number]
        if entry.skip:
            raise DescriptionError(entry.skip)
        system = from_spec(entry.spec, row.num_hosts, gpus, entry.software)
        return Described(system, entry.remark, False, entry.calibrate)


def read_systems(text: str, where: str) -> Systems:
    """Read a systems file; errors name the entry."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DescriptionError(f"this is not YAML: {str(error).splitlines()[0]}.", where=where) from None
    rows = loaded.get("systems") if isinstance(loaded, dict) else loaded
    if not isinstance(rows, list):
        raise DescriptionError("a systems file is a list of entries, each with `system` and `cluster`.", where=where)
    return Systems([_entry(row, f"{where} entry {number}") for number, row in enumerate(rows, start=1)])


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, dict) or "system" not in row:
        raise DescriptionError("an entry needs `system`: part of the text in the system column.", where=where)
    unknown = set(row) - _KEYS
    if unknown:
        raise DescriptionError(
            f'unknown key "{min(unknown)}".', where=where, hint=f"Known: {', '.join(sorted(_KEYS))}."
        )
    if "cluster" not in row and not row.get("skip"):
        raise DescriptionError("an entry needs `cluster` (a cluster description) or `skip` (a reason).", where=where)
    entry = Entry(**{k: v for k, v in row.items() if v is not None})
    try:
        re.compile(entry.notes)
        if not entry.skip:
            entry.spec  # noqa: B018  validates the description now, not at the first row
    except re.error as error:
        raise DescriptionError(f'notes "{entry.notes}" is not a pattern: {error}.', where=where) from None
    except SynclineError as error:
        error.where = error.where or where
        raise
    return entry


def shipped(name: str) -> str:
    """Return the text of a data file that ships with syncline."""
    return (files("syncline.sim") / "data" / name).read_text(encoding="utf-8")


def load_systems(path: str | Path | None) -> Systems:
    """Read a systems file, or the one that ships."""
    if path is None:
        return read_systems(shipped("collectives-systems.yaml"), "collectives-systems.yaml")
    return read_systems(read_text(path), str(path))
