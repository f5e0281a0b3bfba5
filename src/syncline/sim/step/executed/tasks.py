"""The graph of a step as tasks of the flow engine that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.sim.flow.engine import Paths
from syncline.sim.step.arithmetic.kernels import attention_s
from syncline.sim.step.arithmetic.params import expert_holders
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.footprint import Floats, Longs
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
TASK_PARTS = ("compute", OPTIMIZER, *dict.fromkeys(PARTS.values()))


class TaskColumns(NamedTuple):
    """Tasks that wait for each other: each is a delay, or sends a share of some traffic."""

    waits: Paths
    """Row i: the tasks that task i waits for."""
    op: Longs
    """The operation that a task belongs to."""
    delay_s: Floats
    size_bytes: Floats  # stretched, so that alone a task takes what the library takes
    path: Longs
    what: Longs  # which of the step's traffic; -1: none
    share: Floats
    alone_s: Floats
    part: Longs  # of the step's price, as a number of `TASK_PARTS`, which the time on this task belongs to

    @property
    def load(self) -> tuple[Floats, Floats, Longs, Sequence[Sequence[int]]]:
        """What a packet engine is given of them: delay, bytes, path and what each waits for."""
        return self.delay_s, self.size_bytes, self.path, self.waits.rows()

    def take(self, order: Longs) -> TaskColumns:
        """Return all the tasks in another order."""
        waits, number = self.waits.take(order), np.argsort(order).astype(np.int32)
        return TaskColumns(Paths(waits.start, number[waits.link]), *(column[order] for column in self[1:]))  # type: ignore[arg-type]


class TaskDraft:
    """Tasks under construction: those of many operations at once, then who waits for whom."""

    def __init__(self) -> None:
        self.num = 0
        self._columns: list[tuple[Longs | Floats, ...]] = []
        self._waits: list[tuple[Longs, Longs]] = []

    def add(self, ops: Longs, delay_s: Floats | float = 0.0, part: Longs | str = "compute") -> Longs:
        """Add a task to each of some operations, which takes so long; return their numbers."""
        return self._append(ops, np.maximum(delay_s, 0.0), 0.0, -1, -1, 0.0, 0.0, part)

    def send(self, ops: Longs, what: Traffic, fixed_s: Floats | float, share: float = 1.0, alone: bool = True) -> Longs:
        """Add a task to each of some operations, which sends a share of its traffic; return their numbers."""
        alone_s = what["alone_s"] if alone else 0.0
        size, rest = share * what["size_bytes"], (what["path"], what["number"], share, alone_s, what["part"])
        return self._append(ops, fixed_s, size, *rest)

    def wait(self, tasks: Longs, others: Longs) -> None:
        """Let each task wait for the other at its place."""
        self._waits.append((tasks, others))

    @property
    def columns(self) -> TaskColumns:
        """The tasks when all are there."""
        task, other = (np.concatenate([row[i] for row in self._waits]) for i in range(2))
        order = np.argsort(task, kind="stable")
        start = np.concatenate(([0], np.cumsum(np.bincount(task, minlength=self.num))))
        waits = Paths(start, other[order].astype(np.int32))
        return TaskColumns(waits, *(np.concatenate(rows) for rows in zip(*self._columns, strict=True)))

    def _append(self, ops: Longs, *columns: Any) -> Longs:
        *numbers, part = columns
        rows = [np.broadcast_to(each, len(ops)) for each in numbers]
        rows.append(np.broadcast_to(TASK_PARTS.index(part) if isinstance(part, str) else part, len(ops)))
        self._columns.append((ops, *rows))
        self.num += len(ops)
        return np.arange(self.num - len(ops), self.num)


class TrafficKind(NamedTuple):
    """What operations of one name, stage and size have in common: of tens of thousands a few dozen differ."""

    path: int
    part: int  # of the step's price
    sent_bytes: float
    size_bytes: float  # stretched, so that alone it takes what the library takes
    fixed_s: float
    alone_s: float
    hidden_s: float  # how long before the end of its compute it may begin
    line_s: float  # the way over lines between sites


WHOLE = ("number", "path", "part")
TRAFFIC = np.dtype([(name, np.int64) for name in WHOLE] + [(name, np.float64) for name in TrafficKind._fields[2:]])
Traffic = NDArray[np.void]
"""Rows of `TRAFFIC`: what operations send, and its number."""


class StepTasks:
    """The graph of a step as tasks that wait for each other."""

    def __init__(
        self, stages: Stages, result: StepResult, k: Constants, workload: Workload, shorter: StepTasks | None = None
    ) -> None:
        """Lay out the tasks; `shorter` are those of the same step with fewer micro-batches: its traffic is alike."""
        self.stages, self.result, self.k, self.workload = stages, result, k, workload
        self.kinds: dict[tuple[str, int], int] = {} if shorter is None else shorter.kinds
        self.traffic: dict[tuple[str, int, float], TrafficKind] = {} if shorter is None else shorter.traffic
        self.compute_s = durations(result, workload)[0]
        self.head_s = head_s(result, workload)
        self.volumes = {volume.kind: volume for volume in volumes(result.job)}
        none = np.full(len(workload), -1)
        self.begin, self.end = none, none.copy()
        """By operation: the task with which it begins, of those that compute, and that with which it ends."""
        self.columns = self._laid()

    def footprints(self) -> Floats:
        """Return what links carry of each kind and stage, per byte that a rank sends, in the order of `kinds`."""
        rows = [self.stages.footprint(*key) for key in self.kinds]
        return np.stack(rows) if rows else np.zeros((0, len(self.stages.rails.capacity_Bps)))

    def order(self) -> Longs:
        """Return an order of the tasks in which none stands before one that it waits for."""
        w = self.workload
        place = np.empty(len(w), np.int64)
        place[w.order()] = np.arange(len(w))
        place[self._named(OPTIMIZER)] += len(w)  # it waits for what need only be done by the end
        return np.argsort(place[self.columns.op], kind="stable")

    def _named(self, *names: str) -> NDArray[np.bool_]:
        w = self.workload
        return np.isin(w.label, [number for number, name in enumerate(w.names) if name in names])

    def _laid(self) -> TaskColumns:
        w, draft, begin, end = self.workload, TaskDraft(), self.begin, self.end
        stage, computes = w.rank, w.kind == Op.COMPUTE
        before = previous_in_stream(w.rank, w.stream)
        owner, named = np.repeat(np.arange(len(w)), np.diff(w.dep_start)), w.deps
        work = np.flatnonzero(computes[named])[::-1]
        producer = np.full(len(w), -1)  # the first compute that an operation waits for
        producer[owner[work]] = named[work]
        words = np.array([name.split(" ")[0] for name in w.names])[w.label]
        what = self._all_traffic(np.flatnonzero(~computes))

        def sends(*among: str) -> tuple[Longs, Traffic]:
            ops = np.flatnonzero(~computes & np.isin(words, among))
            return ops, what[ops]

        entry = np.full(len(w), -1)  # what waits for all that the operation waits for
        follow = np.full(len(w), -1)  # what the next in the stream waits for, where that is not the end
        dropped = np.zeros(len(w), bool)  # of those that begin before their compute ends
        # Gathers of parameters, and keys and values that pass around, have a communicator of their own: they wait for
        # their compute, not for others.
        own = np.isin(words, ("fsdp",) if self._heads_exchanged else ("fsdp", "context"))
        first = computes & (before < 0)
        first_of = np.zeros(self.result.job.parallel.pp, np.int64)
        first_of[stage[first]] = np.flatnonzero(first)

        ops, sent = sends("parameters")
        least = self.k.held.least_exposed if self._overlaps else 1.0
        entry[ops] = end[ops] = draft.send(ops, sent, sent["fixed_s"], least)
        late = np.full(len(first_of), -1)
        if least < 1:
            hidden = late[stage[ops]] = draft.send(ops, sent, 0.0, 1 - least, alone=False)
            draft.wait(hidden, end[ops])
        # The head needs its parameters, which come last: nothing hides behind it, so the next compute waits for both.
        second = np.flatnonzero(computes & (before >= 0) & first[before])
        second = second[late[stage[second]] >= 0]
        held = self._after(draft, second, late[stage[second]], self.head_s[first_of[stage[second]]])

        ops, optimizer = np.flatnonzero(computes), self._named(OPTIMIZER)
        entry[ops] = begin[ops] = draft.add(ops)
        part = np.where(optimizer[ops], TASK_PARTS.index(OPTIMIZER), TASK_PARTS.index("compute"))
        end[ops] = draft.add(ops, self.compute_s[ops], part)
        draft.wait(end[ops], begin[ops])
        draft.wait(begin[second], held)

        self._gradients(draft, *sends("gradients"), producer, entry)

        ops, sent = sends("send")
        exposed = float(self.stages.case.p2p_exposed) if self.stages.case else 1.0
        entry[ops] = follow[ops] = draft.send(ops, sent, exposed * sent["fixed_s"], exposed)
        end[ops] = self._after(draft, ops, follow[ops], sent["line_s"], "p2p")
        if exposed < 1:
            rest = draft.send(ops, sent, 0.0, 1 - exposed, alone=False)
            draft.wait(rest, follow[ops])
            last = np.zeros(len(first_of), np.int64)
            last[stage[optimizer]] = np.flatnonzero(optimizer)
            draft.wait(begin[last[stage[ops]]], rest)

        ops, sent = sends("tensor", "context", "expert", "fsdp")
        hidden_s = np.where(own[ops] & (words[ops] == "context"), self._attention_s[producer[ops]], sent["hidden_s"])
        early_s = np.where(producer[ops] >= 0, np.minimum(self.compute_s[producer[ops]], hidden_s), 0.0)
        soon = early_s > 0
        dropped[ops] = soon
        mark = draft.add(ops[soon], (self.compute_s[producer[ops]] - early_s)[soon])
        draft.wait(mark, begin[producer[ops[soon]]])
        entry[ops] = end[ops] = draft.send(ops, sent, sent["fixed_s"])
        draft.wait(end[ops[soon]], mark)
        ops = ops[own[ops]]
        joined = draft.add(ops, self._slowed(ops, what[ops], producer) * (words[ops] == "fsdp"), "fsdp")
        draft.wait(joined, end[ops])
        end[ops] = joined
        mine = own[owner]
        draft.wait(joined[np.searchsorted(ops, owner[mine])], end[named[mine]])
        behind = before[ops] >= 0
        draft.wait(joined[behind], end[before[ops[behind]]])

        kept = ~(dropped[owner] & (named == producer[owner]))
        draft.wait(entry[owner[kept]], end[named[kept]])
        streamed = np.flatnonzero((before >= 0) & ~own)
        last_one = before[streamed]
        draft.wait(entry[streamed], np.where(follow[last_one] >= 0, follow[last_one], end[last_one]))
        return draft.columns

    @staticmethod
    def _after(draft: TaskDraft, ops: Longs, tasks: Longs, delay_s: Floats, part: str = "compute") -> Longs:
        """Return tasks that end so long after others: those themselves where that is at once."""
        later, found = delay_s > 0, tasks.copy()
        found[later] = draft.add(ops[later], delay_s[later], part)
        draft.wait(found[later], tasks[later])
        return found

    def _gradients(self, draft: TaskDraft, ops: Longs, sent: Traffic, producer: Longs, entry: Longs) -> None:
        """Add exchanges that begin with the last backward (or, scattered after each, with the first)."""
        case, w, least = self.stages.case, self.workload, self.k.held.least_exposed
        if not self._overlaps:
            entry[ops] = self.end[ops] = draft.send(ops, sent, sent["fixed_s"])
            return
        start = producer[ops]
        if case is not None and float(case.scatter_each):
            backward = np.flatnonzero(self._named("backward"))[::-1]
            of_stage = np.zeros(self.result.job.parallel.pp, np.int64)
            of_stage[w.rank[backward]] = backward
            start = of_stage[w.rank[ops]]
        # The first gradients are the head's.
        begun = self._after(draft, ops, self.begin[start], self.head_s[producer[ops]])
        early = draft.send(ops, sent, sent["fixed_s"], 1 - least)
        draft.wait(early, begun)
        entry[ops] = self.end[ops] = draft.send(ops, sent, 0.0, least, alone=False)
        draft.wait(self.end[ops], early)

    def _slowed(self, ops: Longs, sent: Traffic, producer: Longs) -> Floats:
        """Return what gathers beside an operation cost it: some of the GPU, and a compiler's rings their skew."""
        case = self.stages.case
        if case is None:
            return np.zeros(len(ops))
        experts = np.array([name.startswith("fsdp (experts)") for name in self.workload.names])[
            self.workload.label[ops]
        ]
        beyond = [
            float(ranks - inside(case, ranks, stride))
            for ranks, stride in ((case.shard_ranks, case.tp), (expert_holders(case), case.ep))
        ]
        each = (2 + float(case.reshard)) / 2 * self.k.held.ring_hop_s * float(case.layers) * (float(case.library) == 0)
        skew = each * np.where(experts, beyond[1], beyond[0])
        beside = self._named("forward", "backward")[producer[ops]] & (producer[ops] >= 0)
        slower = self.k.held.c_sm * np.minimum(sent["alone_s"], self.compute_s[producer[ops]])
        return np.asarray(beside * (slower + skew))

    def _all_traffic(self, ops: Longs) -> Traffic:
        """Return what every operation sends; it is nothing for those that compute."""
        w = self.workload
        key = np.stack([w.label[ops].astype(np.float64), w.rank[ops], w.size_bytes[ops]], axis=1)
        _, first, number = np.unique(key, axis=0, return_index=True, return_inverse=True)
        keys: list[tuple[str, int, float]] = [("", 0, 0.0)] * len(first)
        for at in np.argsort(first).tolist():
            op = ops[first[at]]
            known = w.names[int(w.label[op])], int(w.rank[op]), float(w.size_bytes[op])
            if known not in self.traffic:
                self.traffic[known] = self._traffic(*known)
            keys[at] = known
        number_of = {known: at for at, known in enumerate(self.traffic)}
        place = np.array([number_of[known] for known in keys], np.int64)
        rows = np.array([(at, *kind) for at, kind in enumerate(self.traffic.values())], TRAFFIC)
        found = np.zeros(len(w), TRAFFIC)
        found[ops] = rows[place[number.ravel()]]
        return found

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
        part = TASK_PARTS.index(PARTS[word])
        return TrafficKind(path, part, sent_bytes, size, fixed_s, alone_s, hidden_s, line_s)

    @cached_property
    def _overlaps(self) -> bool:
        return self.stages.case is not None and float(self.stages.case.dp_overlap) > 0

    @cached_property
    def _heads_exchanged(self) -> bool:
        """Whether context parallelism exchanges heads (Ulysses), which nothing hides."""
        return self.stages.case is not None and float(self.stages.case.ulysses) > 0

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
        if word == "fsdp":
            return alone * (1 - 1 / max(float(case.layers), 1.0))
        return 0.0

    @cached_property
    def _attention_s(self) -> Floats:
        """The attention of every operation that computes: what keys and values pass behind."""
        case, found = self.stages.case, np.zeros(len(self.workload))
        if case is not None:
            core, back = (float(each * case.layers / case.pp / case.virtual) for each in attention_s(case, self.k))
            found[self._named("forward")] = core
            found[self._named("backward")] = back + core * float(case.redo_tp)
        return found

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
