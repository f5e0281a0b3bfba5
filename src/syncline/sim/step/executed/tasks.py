"""The graph of a step as tasks of the flow engine that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from syncline.sim.step.arithmetic.kernels import attention_s
from syncline.sim.step.arithmetic.params import expert_holders
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.footprint import Floats
from syncline.sim.step.executed.stages import Stages
from syncline.sim.step.network import inside
from syncline.sim.step.spans import durations, head_s
from syncline.sim.step.step import StepResult
from syncline.workload.graph import Op, Workload, previous_in_stream
from syncline.workload.volumes import volumes

EXCHANGES = ("data (experts)", "data (replicas)")
"""What replicas exchange besides the parameters that all of them hold."""
PARTS = {"tensor": "tp", "context": "cp", "expert": "ep", "fsdp": "fsdp", "gradients": "dp", "parameters": "dp",
         "send": "p2p"}  # fmt: skip
"""The part of a step's price by the first word of what is sent."""


OPTIMIZER = "optimizer"


class TaskColumns(NamedTuple):
    """Tasks that wait for each other: each is a delay, or sends a share of some traffic."""

    waits: Sequence[list[int]]
    delay_s: Sequence[float]
    size_bytes: Sequence[float]  # stretched, so that alone a task takes what the library takes
    path: Sequence[int]
    what: Sequence[TrafficKind | None]
    share: Sequence[float]
    alone_s: Sequence[float]
    part: Sequence[str]  # of the step's price, which the time on this task belongs to


class TaskDraft:
    """Tasks under construction, a row each in the order of `TaskColumns`."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[int], float, float, int, TrafficKind | None, float, float, str]] = []

    def add(self, waits: list[int], delay_s: float = 0.0, part: str = "compute") -> int:
        """Add a task that ends so long after those it waits for."""
        self.rows.append((waits, delay_s if delay_s > 0 else 0.0, 0.0, -1, None, 0.0, 0.0, part))
        return len(self.rows) - 1

    def send(
        self, waits: list[int], fixed_s: float, what: TrafficKind, share: float = 1.0, alone_s: float = 0.0
    ) -> int:
        """Add a task that sends a share of some traffic."""
        part = PARTS[what.word]
        self.rows.append((waits, fixed_s, share * what.size_bytes, what.path, what, share, alone_s, part))
        return len(self.rows) - 1

    @cached_property
    def columns(self) -> TaskColumns:
        """The tasks when all are there."""
        return TaskColumns(*zip(*self.rows, strict=True))


@dataclass(frozen=True)
class TrafficKind:
    """What operations of one name, stage and size have in common: of tens of thousands a few dozen differ."""

    name: str
    kind: str
    word: str
    path: int
    sent_bytes: float
    size_bytes: float  # stretched, so that alone it takes what the library takes
    fixed_s: float
    alone_s: float
    hidden_s: float  # how long before the end of its compute it may begin
    line_s: float  # the way over lines between sites


class StepTasks:
    """The graph of a step as tasks that wait for each other."""

    def __init__(
        self, stages: Stages, result: StepResult, k: Constants, workload: Workload, shorter: StepTasks | None = None
    ) -> None:
        """Lay out the tasks; `shorter` are those of the same step with fewer micro-batches: its traffic is alike."""
        self.stages, self.result, self.k, self.workload = stages, result, k, workload
        self.draft = TaskDraft()
        self.kinds: dict[tuple[str, int], int] = {} if shorter is None else shorter.kinds
        self.traffic: dict[tuple[str, int, float], TrafficKind] = {} if shorter is None else shorter.traffic
        self.compute_s: list[float] = durations(result, workload)[0].tolist()
        self.head_s: list[float] = head_s(result, workload).tolist()
        self.size_bytes: list[float] = workload.size_bytes.tolist()
        self.p2p_exposed = float(stages.case.p2p_exposed) if stages.case else 1.0
        self.volumes = {volume.kind: volume for volume in volumes(result.job)}
        self.begin: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.sent: dict[int, int] = {}  # of what is under way longer than it takes to send: the next need not wait
        self.late: dict[int, int] = {}  # by stage: what its second operation waits for
        self.first_head_s: dict[int, float] = {}  # by stage: the head in its first operation
        self.first_backward: dict[int, int] = {}
        self.rest: list[int] = []  # what need only be done by the end
        self._build()

    def footprints(self) -> Floats:
        """Return what links carry of each kind and stage, per byte that a rank sends, in the order of `kinds`."""
        rows = [self.stages.footprint(*key) for key in self.kinds]
        return np.stack(rows) if rows else np.zeros((0, len(self.stages.rails.capacity_Bps)))

    def _build(self) -> None:
        w = self.workload
        # Plain lists: a step has tens of thousands of operations, and reading one number out of an array is slow.
        rank, label, kind = w.rank.tolist(), w.label.tolist(), w.kind.tolist()
        start, waits = w.dep_start.tolist(), w.deps.tolist()
        before = previous_in_stream(w.rank, w.stream).tolist()
        names = [(name, name.startswith("fsdp")) for name in w.names]
        end = self.end
        for op in w.order().tolist():
            # Gathers of parameters have a communicator of their own: they wait for their compute, not for others.
            stage, (name, own), last = rank[op], names[label[op]], before[op]
            named = waits[start[op] : start[op + 1]]
            deps = [end[d] for d in named]
            if last >= 0 and last in end and not own:
                deps.append(self.sent.get(last, end[last]))
            if kind[op] == Op.COMPUTE:
                self._compute(op, stage, name, deps, first=last < 0)
            else:
                self._moved(op, stage, name, deps, named, last)

    def _compute(self, op: int, stage: int, name: str, deps: list[int], first: bool) -> None:
        if first:
            self.first_head_s[stage] = self.head_s[op]
        elif stage in self.late:  # the head needs its parameters, which come last: nothing hides behind it
            deps.append(self._after(self.late.pop(stage), self.first_head_s.get(stage, 0.0)))
        if name == OPTIMIZER:
            deps = [*deps, *self.rest]
        self.begin[op] = self.draft.add(deps)
        self.end[op] = self.draft.add(
            [self.begin[op]], self.compute_s[op], OPTIMIZER if name == OPTIMIZER else "compute"
        )
        if name == "backward":
            self.first_backward.setdefault(stage, self.begin[op])

    def _after(self, task: int, delay_s: float, part: str = "compute") -> int:
        """Return a task that ends so long after another."""
        return self.draft.add([task], delay_s, part) if delay_s > 0 else task

    def _slowed(self, op: int, kind: str) -> float:
        """Return what gathers beside an operation cost it: some of the GPU, and the skew of their rings."""
        case = self.stages.case
        if case is None or self.workload.names[int(self.workload.label[op])] not in ("forward", "backward"):
            return 0.0
        volume, job = self.volumes[kind], self.result.job
        each = volume.size_bytes / (2 * job.num_micro) * self.stages.per_byte_s(kind, 0)
        ranks, stride = (expert_holders(case), case.ep) if kind == "data (experts)" else (case.shard_ranks, case.tp)
        beyond = float(ranks - inside(case, ranks, stride))
        skew = (2 + float(case.reshard)) / 2 * self.k.held.ring_hop_s * beyond * float(case.layers)
        return self.k.held.c_sm * min(each, self.compute_s[op]) + skew

    def _moved(self, op: int, stage: int, name: str, deps: list[int], named: list[int], before: int) -> None:
        size = self.size_bytes[op]
        t = self.traffic.get((name, stage, size))
        if t is None:
            t = self.traffic[name, stage, size] = self._traffic(name, stage, size)
        word, draft, producer = t.word, self.draft, -1
        for d in named:
            if d in self.begin:
                producer = d
                break
        length = self.compute_s[producer] if producer >= 0 else 0.0
        if word == "gradients":
            self._gradients(op, stage, deps, producer, t)
        elif word == "parameters":
            least = self.k.held.least_exposed if self._overlaps else 1.0
            gate = draft.send(deps, t.fixed_s, t, least, t.alone_s)
            self.end[op] = gate
            if least < 1:
                self.late[stage] = draft.send([gate], 0.0, t, 1 - least)
        elif word == "send":
            exposed = self.p2p_exposed
            sent = self.sent[op] = draft.send(deps, exposed * t.fixed_s, t, exposed, t.alone_s)
            self.end[op] = self._after(sent, t.line_s, "p2p")
            if exposed < 1:
                self.rest.append(draft.send([sent], 0.0, t, 1 - exposed))
        else:
            early = min(length, t.hidden_s)
            if producer >= 0 and early > 0:
                others = [d for d in deps if d != self.end[producer]]
                mark = draft.add([self.begin[producer]], length - early)
                deps = [*others, mark]
            self.end[op] = draft.send(deps, t.fixed_s, t, alone_s=t.alone_s)
            if word == "fsdp":  # with what it cost the compute beside it, and whatever else the stream has before it
                named_ends = [self.end[d] for d in named]
                joined = [self.end[op], *named_ends, *([self.end[before]] if before in self.end else [])]
                self.end[op] = draft.add(joined, self._slowed(producer, t.kind) if producer >= 0 else 0.0, "fsdp")

    def _traffic(self, name: str, stage: int, sent_bytes: float) -> TrafficKind:
        kind, word = self._kind(name), name.split(" ")[0]
        path = self.kinds.setdefault((kind, stage), len(self.kinds))
        line_s = self._line_s(stage, kind) if word == "send" else 0.0
        calls, per_byte_s = self._calls(kind, name), self.stages.per_byte_s(kind, stage)
        size, fixed_s = sent_bytes, max(self.stages.fixed_s(kind, calls), 0.0)
        alone_s = size * per_byte_s + fixed_s
        priced = self.stages.library_s(kind, stage, word, sent_bytes, calls)
        if priced is not None and per_byte_s > 0:  # alone it takes what the library takes; others share its links
            size, fixed_s, alone_s = priced / per_byte_s, 0.0, priced
        hidden_s = self._hidden_s(word, alone_s)
        return TrafficKind(name, kind, word, path, sent_bytes, size, fixed_s, alone_s, hidden_s, line_s)

    def _gradients(self, op: int, stage: int, deps: list[int], producer: int, what: TrafficKind) -> None:
        """Add an exchange that begins with the last backward (or, scattered after each, with the first)."""
        case = self.stages.case
        if not self._overlaps or producer < 0:
            self.end[op] = self.draft.send(deps, what.fixed_s, what, alone_s=what.alone_s)
            return
        least = self.k.held.least_exposed
        start = self.begin[producer]
        if case is not None and float(case.scatter_each) and stage in self.first_backward:
            start = self.first_backward[stage]
        start = self._after(start, self.head_s[producer])  # the first gradients are the head's
        early = self.draft.send([start], what.fixed_s, what, 1 - least, what.alone_s)
        self.end[op] = self.draft.send([*deps, early], 0.0, what, least)

    @cached_property
    def _overlaps(self) -> bool:
        return self.stages.case is not None and float(self.stages.case.dp_overlap) > 0

    def _line_s(self, stage: int, kind: str) -> float:
        """Return the way over lines between sites, where one of a stage's ranks has its counterpart at another."""
        site = self.stages.fabric.site_of_host
        host = self.stages.fabric.devices.host
        there = (stage + (1 if kind == "send forward" else -1)) % self.result.job.parallel.pp
        apart = site[host[self.stages.ranks(stage)]] != site[host[self.stages.ranks(there)]]
        return self.result.machine.reach.site_s if apart.any() else 0.0

    def _hidden_s(self, word: str, alone: float) -> float:
        """Return how long before the end of its compute an exchange may begin, if that is so long."""
        case, k = self.stages.case, self.k
        assert case is not None
        if word == "tensor":
            return (1 - (k.fitted.exposed_tp if float(case.tp_overlap) else 1.0)) * alone
        if word == "expert":
            return (1 - k.fitted.exposed_ep * float(case.ep_exposed)) * alone
        if word == "context" and not float(case.ulysses):
            return self._attention_s
        if word == "fsdp":
            return alone * (1 - 1 / max(float(case.layers), 1.0))
        return 0.0

    @cached_property
    def _attention_s(self) -> float:
        """Half of the attention of a chunk's layers: what keys and values pass behind."""
        case = self.stages.case
        assert case is not None
        layers = float(case.layers / case.pp / case.virtual)
        return layers * float(sum(attention_s(case, self.k))) / 2

    def _kind(self, name: str) -> str:
        word = name.split(" ")[0]
        if name.startswith("send"):
            return name
        if word in ("fsdp", "gradients", "parameters"):
            return next((kind for kind in EXCHANGES if name.startswith(kind.replace("data", word))), "data")
        return word

    def _calls(self, kind: str, name: str) -> float:
        """Return how many calls an operation of the graph stands for."""
        volume = self.volumes.get("pipeline" if kind.startswith("send") else kind)
        if volume is None:
            return 1.0
        if kind.startswith("send") or name.split(" ")[0] in ("gradients", "parameters"):
            return 1.0
        job = self.result.job
        return max(1.0, volume.calls / (2 * job.num_micro * job.parallel.virtual)) * self._layers(kind)

    def _layers(self, kind: str) -> float:
        case = self.stages.case
        assert case is not None
        return float(case.layers / case.virtual) if kind in ("data", "data (experts)") and float(case.fsdp) else 1.0
