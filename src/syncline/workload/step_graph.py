"""One training step of a job as a Workload: forward and backward of every chunk and micro-batch, and what is sent.

Layers of a chunk are one operation, with their exchanges beside them. Streams: 0 compute, 1 collectives, 2 point to
point. Bytes are what one rank sends, and add up to `volumes(job)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from syncline.errors import DescriptionError
from syncline.workload.graph import AXES, MAX_OPS, Ints, Op, Workload
from syncline.workload.job import Job
from syncline.workload.pipeline import stage_order
from syncline.workload.shape import Shape
from syncline.workload.volumes import Volume, exchanged_widths, root_parameters, stage_parameters, volumes

#: Of a layer's exchanges, one of how many belongs to the forward: of TP and EP, and of context parallelism.
_ONE_FORWARD_OF = {"tensor": 2, "context": 3, "expert": 2}
PHASES = "FBW"
_PHASES = {"F": "forward", "B": "backward", "W": "weight gradient"}
COMPUTE, COLLECTIVES, POINT_TO_POINT = 0, 1, 2


def step_graph(job: Job, max_micro: int | None = None) -> Workload:
    """Return the graph of one step; `max_micro` draws fewer micro-batches than the job has."""
    shape = job.model
    if not isinstance(shape, Shape):
        raise DescriptionError(f"{shape.name} is a list of layers; its step is not drawn as a graph.")
    return _StepGraph(job, shape, max_micro).build()


class _Kind(NamedTuple):
    """What operations of one name have in common."""

    name: str
    stream: int
    kind: Op
    flops: float = 0.0
    size_bytes: float = 0.0
    axis: str = ""
    ranks: int = 1


class _StepGraph:
    """Thousands of items, each with its exchanges: columns of numbers, laid out for all items of a phase at once."""

    def __init__(self, job: Job, shape: Shape, max_micro: int | None) -> None:
        self.job, self.shape = job, shape
        self.split = job.parallel
        self.num_micro = min(job.num_micro, max_micro or job.num_micro)
        self.volumes = {volume.kind: volume for volume in volumes(job)}
        self.kinds: dict[_Kind, int] = {}
        self.what: list[Ints] = []
        self.rank: list[Ints] = []
        self.waits: list[tuple[Ints, Ints]] = []
        self.num = 0

    def build(self) -> Workload:
        gathered = [self._gather_parameters(stage) for stage in range(self.split.pp)]
        last_backward = self._items(np.array(gathered))
        for stage in range(self.split.pp):
            self._finish(stage, int(last_backward[stage]))
        what, rank = np.concatenate(self.what), np.concatenate(self.rank)
        owner, waited = (np.concatenate(ends) for ends in zip(*self.waits, strict=True))
        kept = np.argsort(owner, kind="stable")
        start = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=self.num))))
        kinds, names = list(self.kinds), list(dict.fromkeys(kind.name for kind in self.kinds))
        columns = {
            field: np.array([getattr(kind, field) for kind in kinds])[what]
            for field in ("stream", "kind", "flops", "size_bytes", "ranks")
        }
        columns["label"] = np.array([names.index(kind.name) for kind in kinds])[what]
        columns["axis"] = np.array([AXES.index(kind.axis) for kind in kinds])[what]
        about = {
            "model": self.shape.name, "micro_batches": self.job.num_micro, "drawn_micro_batches": self.num_micro
        }  # fmt: skip
        return Workload(
            self.job.name, tuple(names), rank, **columns, duration_s=np.full(self.num, np.nan), dep_start=start,
            deps=waited[kept], metadata=about,
        )  # fmt: skip

    def _add(self, stage: int, kind: _Kind, deps: Iterable[int] = ()) -> int:
        """Add one operation and return its number."""
        number, waits = self.num, np.array(list(deps), np.int64)
        self._put(np.array([stage]), np.array([self.kinds.setdefault(kind, len(self.kinds))]))
        self.waits.append((np.full(len(waits), number), waits))
        return number

    def _put(self, rank: Ints, what: Ints) -> None:
        self.rank.append(rank)
        self.what.append(what)
        self.num += len(rank)
        if self.num > MAX_OPS:
            raise DescriptionError(
                f"{self.job.name} has more than {MAX_OPS:,} operations.", hint="Cut the trace to a step."
            )

    def _items(self, gathered: Ints) -> Ints:
        """Add forward and backward of every chunk and micro-batch; return the last backward of each stage."""
        pp, last = self.split.pp, self.split.pp * self.split.virtual - 1
        orders = [stage_order(self.split, stage, self.num_micro) for stage in range(pp)]
        table = np.array([(PHASES.index(phase), chunk, micro) for order in orders for phase, chunk, micro in order])
        phase, chunk, micro = table.T
        stage = np.repeat(np.arange(pp), [len(order) for order in orders])
        position = chunk * pp + stage
        forward, backward = phase == PHASES.index("F"), phase == PHASES.index("B")
        beside = {each: self._beside(each) for each in "FB"} | {"W": []}
        sends = (forward & (position < last)) | (backward & (position > 0))
        sends &= "pipeline" in self.volumes
        exchanges = np.array([len(beside[each]) for each in PHASES])[phase]
        width = 1 + exchanges + sends
        op = self.num + np.cumsum(width) - width
        end = op + exchanges
        what = np.empty(int(width.sum()), np.int64)
        for number in dict.fromkeys(phase.tolist()):
            mine, letter = phase == number, PHASES[number]
            name = _PHASES[letter]
            rows = [_Kind(name, COMPUTE, Op.COMPUTE, flops=self._flops(letter)), *beside[letter]]
            for offset, kind in enumerate(rows):
                what[op[mine] + offset - self.num] = self.kinds.setdefault(kind, len(self.kinds))
                if offset:
                    self.waits.append((op[mine] + offset, op[mine]))
            going = mine & sends
            if going.any():
                volume = self.volumes["pipeline"]
                each = volume.size_bytes / volume.calls
                kind = _Kind(f"send {name}", POINT_TO_POINT, Op.SEND, 0.0, each, "pp", volume.ranks)
                what[end[going] + 1 - self.num] = self.kinds.setdefault(kind, len(self.kinds))
                self.waits.append((end[going] + 1, end[going]))
        self._put(np.repeat(stage, width), what)
        first = np.searchsorted(stage, np.arange(pp))
        early = gathered >= 0
        self.waits.append((op[first[early]], gathered[early]))
        # Weight gradients, which are put off, are nothing that the next item waits for.
        tail = np.maximum.accumulate(np.where(forward | backward, np.arange(len(op)), -1))[:-1]
        behind = np.flatnonzero(tail >= first[stage[1:]])
        self.waits.append((op[behind + 1], end[tail[behind]]))
        sent = np.full((2, last + 1, self.num_micro), -1)
        sent[np.where(forward, 0, 1)[sends], position[sends], micro[sends]] = end[sends] + 1
        for way, mine, step in ((0, forward & (position > 0), -1), (1, backward & (position < last), 1)):
            self.waits.append((op[mine], sent[way, position[mine] + step, micro[mine]]))
        return np.asarray(op[np.append(first[1:], len(op)) - 1])

    def _flops(self, phase: str) -> float:
        """Return the operations of one chunk and micro-batch on one rank."""
        tokens = self.job.batch.micro * self.job.batch.sequence
        whole = self.shape.flops_per_token(self.job.batch.sequence) * tokens
        share = {"F": 1 / 3, "B": 2 / 3, "W": 1 / 3}[phase]
        if phase == "B" and self.split.schedule == "zero-bubble":
            share = 1 / 3
        again = 1 / 3 if phase == "B" and self.job.recompute == "full" else 0.0
        return whole * (share + again) / (self.split.model_ranks * self.split.virtual)

    def _beside(self, phase: str) -> list[_Kind]:
        """Return the exchanges of one chunk's layers."""
        found = []
        per_chunk = self.job.num_micro * self.split.virtual
        again = self.job.recompute == "full"  # a repeated forward repeats its exchanges, in the backward
        for kind, times in _ONE_FORWARD_OF.items():
            if kind in self.volumes:
                volume, share = self.volumes[kind], 1 / (times + again)
                part = share if phase == "F" else 1 - share
                found.append(_exchange(_name(kind, volume), volume, volume.size_bytes * part / per_chunk))
        for kind in ("data", "data (experts)") if self._per_micro else ():
            if kind in self.volumes:
                volume = self.volumes[kind]
                gather, scatter = self._fsdp_parts(volume)
                size = (gather if phase == "F" else scatter) / per_chunk
                found.append(_exchange(_name(kind.replace("data", "fsdp"), volume), volume, size))
        return found

    @property
    def _per_micro(self) -> bool:
        return self.split.sharded_params and self.split.pp == 1 and "data" in self.volumes

    def _fsdp_parts(self, volume: Volume) -> tuple[float, float]:
        """Return the bytes of all first gathers, and of all second gathers and scatters."""
        from syncline.workload.software import facts_of

        facts = facts_of(self.job)
        wire, _ = exchanged_widths(self.job, facts)
        dense, _ = stage_parameters(self.job, self.shape)
        kept = root_parameters(self.job, self.shape) / dense if volume.kind == "data" else 0.0
        whole = facts.parameter_bytes * (2 - kept if facts.reshard else 1) + wire
        return volume.size_bytes * facts.parameter_bytes / whole, volume.size_bytes * (
            1 - facts.parameter_bytes / whole
        )

    def _gather_parameters(self, stage: int) -> int:
        """Add the gather of updated parameters at the start, where each rank owns a part of them; -1: there is none."""
        end = -1
        for kind in ("data", "data (experts)"):
            if self.split.sharded_state and kind in self.volumes and not self._per_micro:
                volume = self.volumes[kind]
                size = volume.size_bytes * self._back_share(kind)
                kept = _exchange(_name(kind.replace("data", "parameters"), volume), volume, size)
                end = self._add(stage, kept, () if end < 0 else (end,))
        return end

    def _back_share(self, kind: str) -> float:
        """Return how much of the exchange of replicas is the gather of updated parameters."""
        from syncline.workload.software import facts_of

        facts = facts_of(self.job)
        if not self.split.sharded_state or self.job.sync.method == "parameter-server" or kind == "data (replicas)":
            return 0.0
        wire, back = exchanged_widths(self.job, facts)
        return back / (back + wire)

    def _finish(self, stage: int, last: int) -> None:
        """Add the exchange of gradients and the optimizer."""
        ends = [last]
        for kind in ("data", "data (experts)", "data (replicas)"):
            if kind in self.volumes and (kind == "data (replicas)" or not self._per_micro):
                volume = self.volumes[kind]
                size = volume.size_bytes * (1 - self._back_share(kind))
                name = _name(kind.replace("data", "gradients"), volume)
                ends.append(self._add(stage, _exchange(name, volume, size), (last,)))
        self._add(stage, _Kind("optimizer", COMPUTE, Op.COMPUTE), ends[1:] or ends)


def _exchange(name: str, volume: Volume, size_bytes: float) -> _Kind:
    return _Kind(name, COLLECTIVES, Op.COLLECTIVE, 0.0, size_bytes, volume.axis, volume.ranks)


def _name(kind: str, volume: Volume) -> str:
    return f"{kind} {volume.collective}"
