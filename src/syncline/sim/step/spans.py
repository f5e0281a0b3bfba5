"""A priced step as a Timeline: the graph of the job, its operations with the durations of the price.

What hides behind compute is drawn beside it: a collective's span ends when the exposed part of it ends, and starts its
whole length earlier, though not before the compute it belongs to.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from syncline.sim.step.collectives import priced_collectives, wire_times
from syncline.sim.step.executed.run_graph import run_graph
from syncline.sim.step.step import IGNORES, StepResult
from syncline.sim.step.tiers import by_tier
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.version import __version__
from syncline.workload.graph import AXES, Floats, Op, Workload, previous_in_stream
from syncline.workload.grid import grid_of
from syncline.workload.stages import stage_layout
from syncline.workload.step_graph import step_graph
from syncline.workload.volumes import volumes

MAX_ITEMS = 60_000
_KINDS = {Op.COMPUTE: SpanKind.COMPUTE, Op.COLLECTIVE: SpanKind.COLLECTIVE, Op.SEND: SpanKind.SEND,
Op.RECV: SpanKind.RECV,
          Op.MEMORY: SpanKind.COPY, Op.WAIT: SpanKind.WAIT}  # fmt: skip


def step_timeline(result: StepResult) -> Timeline:
    """Return the step as spans of one rank per pipeline stage."""
    return _layers_timeline(result) if result.case is None else _graph_timeline(result)


def _graph_timeline(result: StepResult) -> Timeline:
    """Return the step of a graph; very long ones are drawn with fewer micro-batches."""
    job, split = result.job, result.job.parallel
    most = max(2 * split.pp, MAX_ITEMS // (2 * split.pp * split.virtual))
    workload = step_graph(job, max_micro=most)
    exposed, whole = durations(result, workload)
    start, end = run_graph(workload, exposed)
    start = _drawn_start(workload, start, end, whole)
    source = Source(SourceKind.SIMULATED_ANALYTIC, "syncline step", __version__, ignores=IGNORES)
    drawn = int(workload.metadata["drawn_micro_batches"])
    about = {"step_time_s": result.step_time_s, "micro_batches": job.num_micro, "drawn_micro_batches": drawn,
             "ranks": "one per pipeline stage",
             "collectives": [asdict(kind) for kind in priced_collectives(result)]}  # fmt: skip
    builder = TimelineBuilder(source, about)
    kinds = np.array([_KINDS[Op(i)] for i in range(len(Op))])[workload.kind]
    names = np.array([builder.name(text) for text in workload.names], dtype=np.int32)
    builder.add_spans(
        rank=workload.rank.astype(np.int32), start_s=start, end_s=end, kind=kinds.astype(np.uint8),
        name=names[workload.label], stream=workload.stream.astype(np.int16),
        size_bytes=workload.size_bytes.astype(np.int64), step=0,
    )  # fmt: skip
    _add_links(builder, result, workload, start, end)
    return builder.build()


def _layers_timeline(result: StepResult) -> Timeline:
    """Return the step of a model that is a list of layers: forward, backward, what is exchanged, the optimizer."""
    parts = result.parts_s
    source = Source(SourceKind.SIMULATED_ANALYTIC, "syncline step", __version__, ignores=IGNORES)
    builder = TimelineBuilder(source, {"step_time_s": result.step_time_s, "ranks": "one of all"})
    sizes = {kind: int(sum(tiers.values())) for kind, tiers in result.comm_bytes.items()}
    spans = [
        ("table rows", SpanKind.COLLECTIVE, parts["ep"], sizes.get("tables", 0)),
        ("forward", SpanKind.COMPUTE, parts["compute"] / 3, 0),
        ("backward", SpanKind.COMPUTE, parts["compute"] * 2 / 3, 0),
        ("gradients", SpanKind.COLLECTIVE, parts["dp"], sizes.get("data", 0)),
        ("optimizer", SpanKind.COMPUTE, parts["optimizer"] + parts["fixed"], 0),
    ]
    at = 0.0
    for name, kind, seconds, size in spans:
        if seconds > 0:
            stream = 0 if kind is SpanKind.COMPUTE else 1
            builder.add_span(0, at, at + seconds, kind, name, stream=stream, step=0, size_bytes=size)
            at += seconds
    return builder.build()


def durations(result: StepResult, workload: Workload) -> tuple[Floats, Floats]:
    """Return for each operation how long others must wait for it, and how long it takes with what is hidden."""
    case, cost, parts = result.case, result.cost, result.parts_s
    assert case is not None and cost is not None
    m, v = float(case.num_micro), float(case.virtual)
    stages = stage_layout(int(case.layers), int(case.pp), int(v), float(case.head_layers))
    layers = np.array([sum(chunks) for chunks in stages], float)[workload.rank]  # of the stage of each operation
    host = parts["host"] / m / v
    split_backward = 0.5 if result.job.parallel.schedule == "zero-bubble" else 1.0
    back = float(cost.layer.backward)
    fixed = {
        "forward": layers / v * float(cost.layer.forward) + host / 3,
        "backward": layers / v * (split_backward * back + float(cost.layer.redo)) + host * 2 / 3,
        "weight gradient": layers / v * 0.5 * back,
        "optimizer": sum(parts.get(part, 0.0) for part in ("optimizer", "fixed", "codec", "storage")),
        "send forward": float(cost.p2p_wire) / m / (2 * v) * float(case.p2p_exposed),
        "send backward": float(cost.p2p_wire) / m / (2 * v) * float(case.p2p_exposed),
    }
    wire = wire_times(result)
    per_rank = {
        "tensor": (parts["tp"], wire["tp"]),
        "context": (parts["cp"], wire["cp"]),
        "expert": (parts["ep"], wire["ep"]),
        "fsdp": (parts["fsdp"], float(cost.fsdp_wire)),
        "gradients": (parts["dp"], float(cost.dp_wire)),
        "parameters": (parts["dp"], float(cost.dp_wire)),
    }
    if case.fsdp:  # replicas of a hybrid exchange what is left after the scatters: one time, shared by bytes
        per_rank["gradients"] = per_rank["fsdp"]
    exposed, whole = np.zeros(len(workload)), np.zeros(len(workload))
    sizes = {volume.kind: volume.size_bytes for volume in volumes(result.job)}
    data = sum(size for kind, size in sizes.items() if kind.startswith("data")) or 1.0
    for number, name in enumerate(workload.names):
        mine = workload.label == number
        word = name.split(" ")[0]
        if name in fixed:
            exposed[mine] = np.broadcast_to(fixed[name], mine.shape)[mine]
        elif word in per_rank:
            share = workload.size_bytes[mine] / (sizes.get(word) or data)
            exposed[mine], whole[mine] = share * per_rank[word][0], share * per_rank[word][1]
    exposed += head_s(result, workload)
    return exposed, np.maximum(exposed, whole)


def head_s(result: StepResult, workload: Workload) -> Floats:
    """Return what the output layer has of each operation of the last stage."""
    case, cost = result.case, result.cost
    assert case is not None and cost is not None
    found = np.zeros(len(workload))
    for word, seconds in zip(("forward", "backward"), cost.head, strict=True):
        mine = (workload.rank == workload.num_ranks - 1) & (workload.label == workload.names.index(word))
        found[mine] = float(seconds) / float(case.virtual)
    return found


def _drawn_start(workload: Workload, start: Floats, end: Floats, whole: Floats) -> Floats:
    """Return starts moved back by what is hidden, but not before what the operation follows in its stream."""
    drawn = np.minimum(start, end - whole)
    before = previous_in_stream(workload.rank, workload.stream)
    floor = np.where(before >= 0, end[before], 0.0)
    collective = workload.kind == Op.COLLECTIVE
    return np.where(collective, np.minimum(start, np.maximum(drawn, floor)), start)


def _add_links(builder: TimelineBuilder, result: StepResult, workload: Workload, start: Floats, end: Floats) -> None:
    """Add what each drawn rank sends into its scale-up domain and into the network."""
    machine = result.machine
    grid = grid_of(result.job.parallel)
    sent = {volume.axis: by_tier(volume, grid, machine) for volume in volumes(result.job)}
    moving = np.isin(workload.kind, (Op.COLLECTIVE, Op.SEND)) & (workload.size_bytes > 0)
    capacity = {"scale-up": machine.nvlink_Bps, "network": machine.nic_Bps}
    for tier, rate in capacity.items():
        for rank in range(workload.num_ranks):
            link = builder.link(f"rank {rank} {tier}", rate)
            for axis, tiers in sent.items():
                total = sum(tiers.values())
                mine = moving & (workload.rank == rank) & (workload.axis == AXES.index(axis))
                if mine.any() and tiers[tier] > 0:
                    size = workload.size_bytes[mine] * tiers[tier] / total
                    builder.add_samples(link=link, start_s=start[mine], end_s=end[mine], size_bytes=size)
