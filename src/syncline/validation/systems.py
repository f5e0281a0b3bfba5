"""Which system a row was measured on: a systems file maps text of a row to a cluster description and its software.

Rows of collectives are matched by their system column, training runs by their source; `job` and `convention` are facts
of a training run that its row leaves out.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from syncline.describe.document import read_document
from syncline.describe.mistakes import first_mistake
from syncline.errors import DescriptionError, SynclineError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.load import parse_cluster, read_cluster
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.describe import NcclSoftware, from_spec, usual_release
from syncline.sim.nccl.guess import guess, hosts_in, words_of
from syncline.sim.nccl.measured import MeasuredRow, read_text
from syncline.sim.nccl.system import NcclSystem


class SystemEntry(BaseModel):
    """One entry of a systems file: which rows it speaks of, and what they ran on."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    system: str = Field(min_length=1, description="part of the text in the system column, or of a run's source")
    notes: str = Field(default="", max_length=500, description="a regular expression in the row's notes or source")
    cluster: Mapping[str, Any] | str = Field(default_factory=dict, description="a cluster, a preset or a file")
    software: Mapping[str, Any] = Field(default_factory=dict)
    calibrate: bool = True
    skip: str = Field(default="", description="why these rows are not predicted")
    remark: str = ""
    job: Mapping[str, Any] = Field(default_factory=dict, description="keys of a job file")
    convention: str = Field(default="", description="how the source counts FLOP")

    @field_validator("notes")
    @classmethod
    def _pattern(cls, text: str) -> str:
        """Refuse a pattern that does not compile or could take for ever."""
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f'"{text[:80]}" is not a pattern: {error}') from None
        if re.search(r"[+*}]\)[+*{]", text):
            raise ValueError(f'"{text[:80]}" may take forever: a repeated group repeats inside')
        return text

    @model_validator(mode="after")
    def _says_something(self) -> SystemEntry:
        if not (self.cluster or self.skip or self.job or self.software or self.convention):
            raise ValueError("an entry needs `cluster` (a cluster description) or `skip` (a reason)")
        return self

    def names(self, system: str, text: str) -> bool:
        """Return whether a row is of this system: its name is part of the row's, its pattern found in the text."""
        return self.system.lower() in system.lower() and (not self.notes or re.search(self.notes, text) is not None)

    @cached_property
    def spec(self) -> ClusterSpec:
        """The cluster description, validated once: given in place, or the name of a preset or of a file."""
        if isinstance(self.cluster, str):
            return parse_cluster(read_cluster(self.cluster))
        data = {"hosts": 1, **self.cluster}
        try:
            return ClusterSpec.model_validate(data)
        except ValidationError as error:
            raise DescriptionError(f'cluster of "{self.system}": {first_mistake(error)}.') from None


@dataclass(frozen=True)
class SystemReading:
    """A row's system, how it is known, and whether its rows may calibrate."""

    system: NcclSystem
    remark: str = ""
    guessed: bool = False
    calibrate: bool = True


class Systems:
    """The entries of a systems file, asked row by row."""

    def __init__(self, entries: Sequence[SystemEntry]) -> None:
        self.entries = tuple(entries)
        self._cache: dict[tuple[Any, ...], SystemReading] = {}

    def of(self, row: MeasuredRow) -> SystemReading:
        """Return the system of a row, or raise a SynclineError that says why it cannot be modelled."""
        number = next((i for i, e in enumerate(self.entries) if e.names(row.system, f"{row.notes} {row.source}")), -1)
        known = (row.source, row.notes, row.system) if number < 0 else ()
        key = (number, row.num_hosts, row.num_gpus, _in_switch(row), *known)
        if key not in self._cache:
            self._cache[key] = self._describe(number, row)
        return self._cache[key]

    def _describe(self, number: int, row: MeasuredRow) -> SystemReading:
        entry = self.entries[number] if number >= 0 else None
        if entry is not None and entry.skip:
            raise DescriptionError(entry.skip)
        num_hosts = row.num_hosts or self._hosts(entry, row)
        if row.num_gpus % num_hosts:
            raise DescriptionError(f"{row.num_gpus} GPUs do not divide over {num_hosts} hosts.")
        gpus = row.num_gpus // num_hosts
        if entry is None or not entry.cluster:
            system = guess(row.system, row.notes, num_hosts, gpus)
            system = _for_type(system, row)
            return SystemReading(system, f"described by guess from its text: {words_of(system)}", True)
        said = "nccl" in {**entry.spec.software, **entry.software}
        system = usual_release(from_spec(entry.spec, num_hosts, gpus, cast("NcclSoftware", entry.software)), said)
        return SystemReading(_for_type(system, row), entry.remark, False, entry.calibrate)

    def _hosts(self, entry: SystemEntry | None, row: MeasuredRow) -> int:
        """Return the hosts of a row that does not say how many."""
        if entry is None or not entry.cluster:
            return hosts_in(row.system, row.notes, row.num_gpus)
        model = (entry.spec.hosts or entry.spec.sites[0].hosts)[0].host.resolve(load_catalog())
        return max(1, -(-row.num_gpus // model.num_gpus))


def _in_switch(row: MeasuredRow) -> bool:
    """Say whether NVLink switches can reduce this type: they add floats and wide integers, not bytes or fp8."""
    return not re.fullmatch(r"u?int8(_t)?|char|(?:f|fp|float)8\w*", row.dtype.strip().lower())


def _for_type(system: NcclSystem, row: MeasuredRow) -> NcclSystem:
    if _in_switch(row) or row.op not in ("all_reduce", "reduce_scatter"):
        return system
    return replace(system, env={**system.env, "NCCL_NVLS_ENABLE": "0"})


def read_systems(text: str, where: str) -> Systems:
    """Read a systems file; errors name the entry.

    A list of entries, or a mapping from the text of the system column to an entry; either may be under `systems`.
    """
    loaded = read_document(text, where).data
    rows = loaded.get("systems", loaded) if isinstance(loaded, dict) else loaded
    if isinstance(rows, dict) and all(isinstance(row, dict) for row in rows.values()):
        # A mapping from system to entry; what is no entry is the cluster description itself.
        keys = set(SystemEntry.model_fields) - {"notes"}
        rows = [{"system": name, **(row if set(row) & keys else {"cluster": row})} for name, row in rows.items()]
    if not isinstance(rows, list):
        raise DescriptionError("a systems file is a list of entries, each with `system` and `cluster`.", where=where)
    return Systems([_entry(row, f"{where} entry {number}") for number, row in enumerate(rows, start=1)])


def _entry(row: Any, where: str) -> SystemEntry:
    try:
        entry = SystemEntry.model_validate(row)
        if entry.cluster and not entry.skip:
            entry.spec  # noqa: B018  validates the description now, not at the first row
    except ValidationError as error:
        raise DescriptionError(f"{first_mistake(error)}.", where=where) from None
    except SynclineError as error:
        error.where = error.where or where
        raise
    return entry


def shipped(name: str) -> str:
    """Return the text of a data file that ships with syncline."""
    content = (files("syncline.validation") / "data" / name).read_bytes()
    return (gzip.decompress(content) if name.endswith(".gz") else content).decode()


def own_systems(path: str | Path | None) -> tuple[SystemEntry, ...]:
    """Return the entries of one's own systems file, none where no file is given."""
    return read_systems(read_text(path), str(path)).entries if path is not None else ()


def load_systems(path: str | Path | None) -> Systems:
    """Read a systems file, or the one that ships."""
    if path is None:
        return read_systems(shipped("nccl-systems.yaml"), "nccl-systems.yaml")
    return read_systems(read_text(path), str(path))
