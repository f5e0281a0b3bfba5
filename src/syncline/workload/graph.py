"""The Workload: one step as a graph of operations in columns: what is computed, what is sent, and what waits for what.

    workload = step_graph(job)                # from a job
    workload = read_chakra("trace.0.et")      # or from a trace
    workload.total_bytes("tp")

Operations of one rank and stream run in their order; `deps` adds what they wait for besides. A graph of a job has one
representative rank per pipeline stage; what ranks of a group do alike stands once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.document import read_text
from syncline.describe.files import write_text
from syncline.errors import DescriptionError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MAX_OPS = 5_000_000
FORMAT = "workload 1"


class Op(IntEnum):
    """What an operation does."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3
    MEMORY = 4
    WAIT = 5


AXES = ("", "tp", "cp", "ep", "dp", "pp", "world")
_AXIS = {axis: number for number, axis in enumerate(AXES)}


@dataclass(frozen=True, eq=False)
class Workload:
    """Columns of operations; row i is operation i. `duration_s` is NaN where only a price can tell."""

    name: str
    names: tuple[str, ...]
    rank: Ints
    stream: Ints
    kind: Ints
    label: Ints  # index into names
    flops: Floats
    size_bytes: Floats
    axis: Ints  # index into AXES
    ranks: Ints  # size of the group that communicates
    duration_s: Floats
    dep_start: Ints
    deps: Ints
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def num_ranks(self) -> int:
        return int(self.rank.max()) + 1 if len(self) else 0

    def total_bytes(self, axis: str | None = None, rank: int | None = None) -> float:
        """Return the bytes sent by a rank (the one that sends most, unless named), along one axis or in all."""
        chosen = np.isin(self.kind, (Op.COLLECTIVE, Op.SEND))
        if axis is not None:
            chosen &= self.axis == AXES.index(axis)
        sums = np.bincount(self.rank[chosen], weights=self.size_bytes[chosen], minlength=max(self.num_ranks, 1))
        return float(sums.max() if rank is None else sums[rank])

    def dependencies(self, op: int) -> Ints:
        """Return what an operation waits for besides its place in its stream."""
        return self.deps[self.dep_start[op] : self.dep_start[op + 1]]

    def order(self) -> Ints:
        """Return the operations in an order that keeps streams and dependencies, or raise if there is none."""
        before = previous_in_stream(self.rank, self.stream)
        num = len(self)
        waits = np.diff(self.dep_start).astype(np.int64) + (before >= 0)
        ready = np.flatnonzero(waits == 0).tolist()
        left, done = waits.tolist(), []
        start, after = (column.tolist() for column in _followers(self, before))
        while ready:
            op = ready.pop()
            done.append(op)
            for nxt in after[start[op] : start[op + 1]]:
                left[nxt] -= 1
                if left[nxt] == 0:
                    ready.append(nxt)
        if len(done) != num:
            stuck = next(i for i in range(num) if left[i] > 0)
            raise DescriptionError(
                f'operation {stuck} ("{self.names[int(self.label[stuck])]}") of {self.name} waits for itself.',
                hint="The trace has a cycle of dependencies.",
            )
        return np.array(done, dtype=np.int64)


def previous_in_stream(rank: Ints, stream: Ints) -> Ints:
    """Return for each operation the one before it in its rank's stream, or -1."""
    key = rank * 1024 + stream
    order = np.argsort(key, kind="stable")
    before = np.full(len(rank), -1, dtype=np.int64)
    same = key[order][1:] == key[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _followers(workload: Workload, before: Ints) -> tuple[Ints, Ints]:
    """Return for each operation those that wait for it, as compressed rows."""
    num = len(workload)
    owner = np.repeat(np.arange(num, dtype=np.int64), np.diff(workload.dep_start))
    has = before >= 0
    source = np.concatenate([workload.deps, before[has]])
    target = np.concatenate([owner, np.flatnonzero(has)])
    order = np.argsort(source, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=num)))).astype(np.int64)
    return start, target[order]


class GraphBuilder:
    """Collects operations, then `build()`s a Workload."""

    def __init__(self, name: str, metadata: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.metadata = dict(metadata or {})
        self._names: dict[str, int] = {}
        self._rows: list[tuple[float, ...]] = []
        self._deps: list[tuple[int, ...]] = []
        self._before: list[int] = []  # the operation before it in its stream, or -1
        self._last: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self, rank: int, kind: Op, name: str, *, stream: int = 0, flops: float = 0.0, size_bytes: float = 0.0,
        axis: str = "", ranks: int = 1, duration_s: float = float("nan"), deps: tuple[int, ...] = (),
    ) -> int:  # fmt: skip
        """Append an operation and return its number."""
        label = self._names.setdefault(name, len(self._names))
        number, place = len(self._rows), (rank, stream)
        self._rows.append((rank, stream, kind, label, flops, size_bytes, _AXIS[axis], ranks, duration_s))
        self._deps.append(deps)
        self._before.append(self._last.get(place, -1))
        self._last[place] = number
        if number >= MAX_OPS:
            raise DescriptionError(
                f"{self.name} has more than {MAX_OPS:,} operations.", hint="Cut the trace to a step."
            )
        return number

    def wait(self, op: int, *others: int) -> None:
        """Make an operation wait for others that were added later."""
        self._deps[op] = (*self._deps[op], *others)

    def meet(self, ops: Sequence[int]) -> None:
        """Make operations start together: each waits for all that any of them waits for."""
        waited = {dep for op in ops for dep in (*self._deps[op], self._before[op]) if dep >= 0}
        for op in ops:
            self._deps[op] = tuple(sorted(waited))

    def build(self) -> Workload:
        """Return the workload; dependencies that name no operation are refused."""
        table = np.array(self._rows, dtype=np.float64).reshape(len(self._rows), 9)
        start = np.concatenate(([0], np.cumsum([len(d) for d in self._deps]))).astype(np.int64)
        deps = np.array([d for row in self._deps for d in row], dtype=np.int64)
        if len(deps) and not (deps.min() >= 0 and deps.max() < len(self._rows)):
            raise DescriptionError(f"{self.name} waits for an operation that is not in it.")
        whole = table[:, [0, 1, 2, 3, 6, 7]].astype(np.int64)
        return Workload(
            name=self.name, names=tuple(self._names), rank=whole[:, 0], stream=whole[:, 1], kind=whole[:, 2],
            label=whole[:, 3], flops=table[:, 4], size_bytes=table[:, 5], axis=whole[:, 4], ranks=whole[:, 5],
            duration_s=table[:, 8], dep_start=start, deps=deps, metadata=self.metadata,
        )  # fmt: skip


_COLUMNS = tuple(each.name for each in fields(Workload) if each.name not in ("name", "names", "metadata"))


def save_workload(workload: Workload, path: str | Path) -> None:
    """Write a workload as JSON columns."""
    columns = {name: getattr(workload, name).tolist() for name in _COLUMNS}
    columns["duration_s"] = [None if np.isnan(value) else value for value in workload.duration_s.tolist()]
    data = {"syncline": FORMAT, "name": workload.name, "names": workload.names, "metadata": dict(workload.metadata)}
    write_text(Path(path), json.dumps(data | {"columns": columns}))


def load_workload(path: str | Path) -> Workload:
    """Read a workload that `save_workload` wrote."""
    try:
        data = json.loads(read_text(Path(path), limit=512 * 2**20))
        if data["syncline"] != FORMAT:
            raise KeyError("syncline")
        columns = data["columns"]
        columns["duration_s"] = [np.nan if value is None else value for value in columns["duration_s"]]
        real = ("flops", "size_bytes", "duration_s")
        arrays: dict[str, npt.NDArray[Any]] = {
            n: np.array(columns[n], dtype=np.float64 if n in real else np.int64) for n in _COLUMNS
        }
        loaded = Workload(
            name=str(data["name"]), names=tuple(map(str, data["names"])), metadata=data["metadata"], **arrays
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DescriptionError("is not a workload that syncline wrote.", where=str(path)) from None
    _check(loaded, str(path))
    return loaded


def _check(workload: Workload, where: str) -> None:
    num = len(workload.rank)
    same = all(len(getattr(workload, n)) == num for n in _COLUMNS if n not in ("dep_start", "deps"))
    steps = workload.dep_start
    good = same and len(steps) == num + 1 and (num == 0 or bool((np.diff(steps) >= 0).all()))
    good = good and (not len(workload.deps) or (workload.deps.min() >= 0 and workload.deps.max() < num))
    good = good and (num == 0 or (workload.label.min() >= 0 and workload.label.max() < len(workload.names)))
    if not good or (num and (workload.rank.min() < 0 or int(steps[-1]) != len(workload.deps))):
        raise DescriptionError("its columns do not fit together.", where=where)
