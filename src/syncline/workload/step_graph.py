"""One training step of a job as a Workload: forward and backward of every chunk and micro-batch, and what is sent.

Layers of a chunk are one operation, with their exchanges beside them. Streams: 0 compute, 1 collectives, 2 point to
point. Bytes are what one rank sends, and add up to `volumes(job)`.
"""

from __future__ import annotations

from syncline.errors import DescriptionError
from syncline.workload.graph import GraphBuilder, Op, Workload
from syncline.workload.job import Job
from syncline.workload.pipeline import stage_order
from syncline.workload.shape import Shape
from syncline.workload.volumes import Volume, exchanged_widths, root_parameters, stage_parameters, volumes

#: Of a layer's exchanges, how many belong to the forward: half of TP and EP, a third of a ring's keys and values.
_FORWARD_SHARE = {"tensor": 0.5, "context": 1 / 3, "expert": 0.5}
_PHASES = {"F": "forward", "B": "backward", "W": "weight gradient"}
COMPUTE, COLLECTIVES, POINT_TO_POINT = 0, 1, 2


def step_graph(job: Job, max_micro: int | None = None) -> Workload:
    """Return the graph of one step; `max_micro` draws fewer micro-batches than the job has."""
    shape = job.model
    if not isinstance(shape, Shape):
        raise DescriptionError(f"{shape.name} is a list of layers; its step is not drawn as a graph.")
    return _StepGraph(job, shape, max_micro).build()


class _StepGraph:
    def __init__(self, job: Job, shape: Shape, max_micro: int | None) -> None:
        self.job, self.shape = job, shape
        self.split = job.parallel
        self.num_micro = min(job.num_micro, max_micro or job.num_micro)
        self.volumes = {volume.kind: volume for volume in volumes(job)}
        about = {"model": shape.name, "micro_batches": job.num_micro, "drawn_micro_batches": self.num_micro}
        self.out = GraphBuilder(job.name, about)
        self.done: dict[tuple[str, int, int], int] = {}
        self.waiting: list[tuple[int, tuple[str, int, int]]] = []
        self.last_backward: dict[int, int] = {}
        self.tail: dict[int, int] = {}
        # Once for a phase, not for each of its thousands of items.
        self.flops = {phase: self._flops(phase) for phase in "FBW"}
        self.beside = {phase: self._beside(phase) for phase in "FB"}

    def build(self) -> Workload:
        gathered = {stage: self._gather_parameters(stage) for stage in range(self.split.pp)}
        for stage in range(self.split.pp):
            for number, (phase, chunk, micro) in enumerate(stage_order(self.split, stage, self.num_micro)):
                self._item(stage, phase, chunk, micro, gathered[stage] if number == 0 else None)
        for op, key in self.waiting:
            self.out.wait(op, self.done[key])
        for stage in range(self.split.pp):
            self._finish(stage)
        return self.out.build()

    def _flops(self, phase: str) -> float:
        """Return the operations of one chunk and micro-batch on one rank."""
        tokens = self.job.batch.micro * self.job.batch.sequence
        whole = self.shape.flops_per_token(self.job.batch.sequence) * tokens
        share = {"F": 1 / 3, "B": 2 / 3, "W": 1 / 3}[phase]
        if phase == "B" and self.split.schedule == "zero-bubble":
            share = 1 / 3
        again = 1 / 3 if phase == "B" and self.job.recompute == "full" else 0.0
        return whole * (share + again) / (self.split.model_ranks * self.split.virtual)

    def _item(self, stage: int, phase: str, chunk: int, micro: int, first: int | None) -> None:
        position = chunk * self.split.pp + stage
        last = self.split.pp * self.split.virtual - 1
        name = _PHASES[phase]
        deps = tuple(d for d in (first, self.tail.get(stage)) if d is not None)
        op = self.out.add(stage, Op.COMPUTE, name, stream=COMPUTE, flops=self.flops[phase], deps=deps)
        if phase == "W":
            self.last_backward[stage] = op
            return
        if phase == "F" and position > 0:
            self.waiting.append((op, ("send F", position - 1, micro)))
        if phase == "B" and position < last:
            self.waiting.append((op, ("send B", position + 1, micro)))
        end = self._exchanges(stage, phase, op)
        self.tail[stage] = end
        self.last_backward[stage] = op
        going = (phase == "F" and position < last) or (phase == "B" and position > 0)
        if going and "pipeline" in self.volumes:
            volume = self.volumes["pipeline"]
            sent = self.out.add(
                stage, Op.SEND, f"send {name}", stream=POINT_TO_POINT, size_bytes=volume.size_bytes / volume.calls,
                axis="pp", ranks=volume.ranks, deps=(end,),
            )  # fmt: skip
            self.done[(f"send {phase}", position, micro)] = sent

    def _exchanges(self, stage: int, phase: str, op: int) -> int:
        """Add the exchanges of one chunk's layers beside its compute; return what ends last."""
        end = op
        for name, volume, size in self.beside[phase]:
            end = self._collective(stage, name, volume, size, (op,))
        return end

    def _beside(self, phase: str) -> list[tuple[str, Volume, float]]:
        """Return the exchanges of one chunk's layers: name, kind and bytes."""
        found = []
        per_chunk = self.job.num_micro * self.split.virtual
        for kind, share in _FORWARD_SHARE.items():
            if kind in self.volumes:
                volume = self.volumes[kind]
                part = self._forward_share(kind, share) if phase == "F" else 1 - self._forward_share(kind, share)
                found.append((_name(kind, volume), volume, volume.size_bytes * part / per_chunk))
        for kind in ("data", "data (experts)") if self._per_micro else ():
            if kind in self.volumes:
                volume = self.volumes[kind]
                gather, scatter = self._fsdp_parts(volume)
                size = (gather if phase == "F" else scatter) / per_chunk
                found.append((_name(kind.replace("data", "fsdp"), volume), volume, size))
        return found

    def _forward_share(self, kind: str, share: float) -> float:
        # A repeated forward repeats its exchanges, in the backward.
        return 1 / 3 if self.job.recompute == "full" and kind in ("tensor", "expert") else share

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

    def _collective(self, stage: int, name: str, volume: Volume, size: float, deps: tuple[int, ...]) -> int:
        return self.out.add(
            stage,
            Op.COLLECTIVE,
            name,
            stream=COLLECTIVES,
            size_bytes=size,
            axis=volume.axis,
            ranks=volume.ranks,
            deps=deps,
        )

    def _gather_parameters(self, stage: int) -> int | None:
        """Add the gather of updated parameters at the start, where each rank owns a part of them."""
        end = None
        for kind in ("data", "data (experts)"):
            if self.split.sharded_state and kind in self.volumes and not self._per_micro:
                volume = self.volumes[kind]
                after = () if end is None else (end,)
                size = volume.size_bytes * self._back_share(kind)
                end = self._collective(stage, _name(kind.replace("data", "parameters"), volume), volume, size, after)
        return end

    def _back_share(self, kind: str) -> float:
        """Return how much of the exchange of replicas is the gather of updated parameters."""
        from syncline.workload.software import facts_of

        facts = facts_of(self.job)
        if not self.split.sharded_state or self.job.sync.method == "parameter-server" or kind == "data (replicas)":
            return 0.0
        wire, back = exchanged_widths(self.job, facts)
        return back / (back + wire)

    def _finish(self, stage: int) -> None:
        """Add the exchange of gradients and the optimizer."""
        last = self.last_backward[stage]
        ends = [last]
        for kind in ("data", "data (experts)", "data (replicas)"):
            if kind in self.volumes and (kind == "data (replicas)" or not self._per_micro):
                volume = self.volumes[kind]
                size = volume.size_bytes * (1 - self._back_share(kind))
                name = _name(kind.replace("data", "gradients"), volume)
                ends.append(self._collective(stage, name, volume, size, (last,)))
        self.out.add(stage, Op.COMPUTE, "optimizer", stream=COMPUTE, deps=tuple(ends[1:] or ends))


def _name(kind: str, volume: Volume) -> str:
    return f"{kind} {volume.collective}"
