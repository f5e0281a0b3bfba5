"""Communication that nothing hides, by module and collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.model import Handle, handle
from syncline.previewing.execute import GraphRun, covered, sent_bytes, union
from syncline.sim.nccl.system import MAX_POINT_HOSTS
from syncline.sim.step.machine import Machine
from syncline.sim.uncertainty import Spread, collective_spread, generation_of
from syncline.workload.graph import Op


@dataclass(frozen=True)
class CollectiveUse:
    """One kind of collective on one group in a step of one rank."""

    name: str
    ranks: int
    phase: str
    calls: int
    size_bytes: float  # of the buffers, in all
    sent_bytes: float
    total_s: float
    exposed_s: float
    module: str  # the one that exposes most
    limiting_link: str
    group: Handle[int] = handle()  # of the capture


def collectives(executed: GraphRun) -> tuple[CollectiveUse, ...]:
    """Return the collectives of the last step, most exposed first, of the rank that exposes most."""
    by_rank = [_of_rank(executed, rank) for rank in range(len(executed.graph.captures))]
    return max(by_rank, key=lambda uses: sum(use.exposed_s for use in uses), default=())


def exposed_s(executed: GraphRun, rank: int = 0) -> float:
    """Return how long, in the last step, a rank communicates and computes nothing."""
    kernels, moves = executed.rows((Op.COMPUTE,), rank), executed.rows((Op.COLLECTIVE, Op.SEND), rank)
    begin, end = executed.begin_s, executed.end_s
    busy = union(begin[kernels], end[kernels])
    talk = union(begin[moves], end[moves])
    return float((talk[:, 1] - talk[:, 0]).sum() - covered(busy, talk[:, 0], talk[:, 1]).sum()) if len(talk) else 0.0


def talking(kernels: Spread, step_s: float, exposed: float, uses: Sequence[CollectiveUse], machine: Machine) -> Spread:
    """Return how far off a step may be whose kernels may be so far off, and its communication as NCCL's was.

    What is exposed takes as much longer; what is hidden comes out where it no longer fits behind the kernels.
    """
    used = sum(use.total_s for use in uses)
    if used <= 0 or step_s <= 0:
        return kernels
    net = _collective_spread(max(uses, key=lambda use: use.total_s), machine)
    rest, hidden = step_s - exposed, max(min(used, step_s) - exposed, 0.0)

    def end(of_kernels: float, of_net: float) -> float:
        return (of_kernels * rest + of_net * exposed + max(of_net * hidden - rest, 0.0)) / step_s

    return replace(
        kernels,
        low_90=end(kernels.low_90, net.low_90), low_50=end(kernels.low_50, net.low_50),
        high_50=end(kernels.high_50, net.high_50), high_90=end(kernels.high_90, net.high_90),
        of_what=f"{kernels.of_what}; communication as {net.num_rows:,} rows of {net.num_sources} systems",
        unmeasured=(*kernels.unmeasured, *net.unmeasured),
    )  # fmt: skip


def _collective_spread(use: CollectiveUse, machine: Machine) -> Spread:
    """Return how far off one kind of collective may be on a cluster that a file describes."""
    hosts = -(-use.ranks // machine.gpus_per_host)
    reach = "one" if use.ranks <= machine.domain else "few" if hosts <= MAX_POINT_HOSTS else "many"
    op = {"send": "send_recv", "recv": "send_recv"}.get(use.name, use.name)
    gpu = machine.gpu
    generation = "RCCL" if gpu.vendor == "amd" else generation_of(gpu.architecture, gpu.vendor)
    return collective_spread(False, reach, op, generation, hosts, use.size_bytes / max(use.calls, 1))


def _of_rank(executed: GraphRun, rank: int) -> tuple[CollectiveUse, ...]:
    graph, work = executed.graph, executed.graph.workload
    captured = graph.captures[rank]
    kernels, moves = executed.rows((Op.COMPUTE,), rank), executed.rows((Op.COLLECTIVE, Op.SEND), rank)
    begin, end = executed.begin_s, executed.end_s
    busy = union(begin[kernels], end[kernels])
    spent = end[moves] - begin[moves]
    bare = spent - covered(busy, begin[moves], end[moves])
    whole = exposed_s(executed, rank)
    bare = bare * (whole / bare.sum()) if bare.sum() > 0 else bare
    keys: dict[tuple[str, int, str, int], list[int]] = {}
    for place, row in enumerate(moves.tolist()):
        op = captured.ops[int(graph.source[row])]
        key = (work.names[int(work.label[row])], int(work.ranks[row]), op.phase, int(graph.group[row]))
        keys.setdefault(key, []).append(place)
    found = []
    for (name, ranks, phase, group), places in keys.items():
        rows = moves[places]
        sizes = work.size_bytes[rows]
        worst: dict[str, float] = {}
        for place, row in zip(places, rows.tolist(), strict=True):
            op = captured.ops[int(graph.source[row])]
            module = captured.words[op.module] or captured.words[op.line]
            worst[module] = worst.get(module, 0.0) + float(bare[place])
        links = [executed.limiting[row] for row in rows.tolist() if row in executed.limiting]
        link = max(set(links), key=links.count) if links else ""
        share = [executed.encoded.get(row, 1.0) for row in rows.tolist()]
        sent = float(sum(sent_bytes(name, float(s), ranks) * part for s, part in zip(sizes, share, strict=True)))
        times = float(spent[places].sum()), float(np.asarray(bare)[places].sum())
        module = max(worst, key=lambda each: worst[each])
        found.append(
            CollectiveUse(name, ranks, phase, len(rows), float(sizes.sum()), sent, *times, module, link, group=group)
        )
    return tuple(sorted(found, key=lambda use: -use.exposed_s))
