"""A captured step as a Timeline, or as Chakra execution traces: one file for each captured rank, and the groups."""

from __future__ import annotations

import json
from pathlib import Path

from syncline.describe.files import make_folder, write_text
from syncline.previewing.execute import IGNORES, GraphRun
from syncline.previewing.graph import StepGraph
from syncline.previewing.price import useful_flops
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.version import __version__
from syncline.workload.graph import Op
from syncline.workload.traces.chakra import COLLECTIVES, GROUPS_FILE, GROWING
from syncline.workload.traces.chakra_file import TraceOp, write_ops

_TYPE = {Op.COMPUTE: "COMP_NODE", Op.SEND: "COMM_SEND_NODE", Op.RECV: "COMM_RECV_NODE", Op.COLLECTIVE: "COMM_COLL_NODE"}
_KINDS = (SpanKind.COMPUTE, SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECV, SpanKind.OTHER, SpanKind.WAIT)


def timeline_of(executed: GraphRun) -> Timeline:
    """Return what every captured rank does in the two steps."""
    graph, work = executed.graph, executed.graph.workload
    builder = TimelineBuilder(Source(SourceKind.SIMULATED_FLOW, "syncline preview", __version__, ignores=IGNORES), {})
    names = []
    for row in range(len(work)):
        name, source = work.names[int(work.label[row])], int(graph.source[row])
        captured = graph.captures[int(work.rank[row])]
        module = captured.words[captured.ops[source].module] if source >= 0 else ""
        names.append(builder.name(f"{module}: {name}" if module else name))
    shown = (graph.source >= 0) | (work.kind == Op.WAIT)
    at = shown.nonzero()[0]
    builder.add_spans(
        rank=work.rank[at].astype("int32"),
        start_s=executed.begin_s[at],
        end_s=executed.end_s[at],
        kind=[_KINDS[int(kind)] for kind in work.kind[at]],
        name=[names[row] for row in at],
        stream=work.stream[at].astype("int16"),
        size_bytes=work.size_bytes[at].astype("int64"),
    )
    return builder.build()


def save_chakra(graph: StepGraph, folder: Path) -> tuple[Path, ...]:
    """Write the last step of every captured rank to `step.RANK.et` in a folder; return the files."""
    make_folder(folder)
    files = []
    groups: dict[str, list[int]] = {}
    for number, captured in enumerate(graph.captures):
        path = folder / f"step.{captured.rank}.et"
        names = {index: f"{number}.{index}" for index in range(len(captured.groups))}
        groups |= {names[index]: list(ranks) for index, ranks in enumerate(captured.groups)}
        write_ops(path, _ops(graph, number, names))
        files.append(path)
    write_text(folder / GROUPS_FILE, json.dumps(groups))
    return tuple(files)


def _ops(graph: StepGraph, rank: int, groups: dict[int, str]) -> list[TraceOp]:
    """Return the operations of one rank's last step; each waits for its stream and for what it waited for."""
    work, last = graph.workload, graph.num_steps - 1
    captured = graph.captures[rank]
    found: list[TraceOp] = []
    before: dict[int, int] = {}
    number: dict[int, int] = {}
    owed = 0.0  # traces count whole microseconds: what one kernel is rounded by is the next one's
    for row in ((work.rank == rank) & (graph.step == last)).nonzero()[0].tolist():
        source, kind = int(graph.source[row]), Op(int(work.kind[row]))
        if source < 0 or kind not in _TYPE:
            continue
        deps = {number[int(d)] for d in work.deps[work.dep_start[row] : work.dep_start[row + 1]] if int(d) in number}
        stream = int(work.stream[row])
        if stream in before:
            deps.add(before[stream])
        op = TraceOp(len(found) + 1, "", _TYPE[kind], sorted(deps), attributes={"is_cpu_op": False, "stream": stream})
        if kind is Op.COMPUTE:
            kernel = captured.kernels[captured.ops[source].signature]
            owed += float(work.duration_s[row]) * 1e6
            op.name, op.duration_us = kernel.name, float(max(round(owed), 1))
            owed -= op.duration_us
            op.attributes["num_ops"] = int(useful_flops(kernel))
        else:
            _moved(op, graph, row, groups)
        number[row] = before[stream] = op.number
        found.append(op)
    return found


def _moved(op: TraceOp, graph: StepGraph, row: int, groups: dict[int, str]) -> None:
    work = graph.workload
    what, size = work.names[int(work.label[row])], float(work.size_bytes[row])
    op.name = what
    if op.type == "COMM_COLL_NODE":
        own = size / int(work.ranks[row]) if what in GROWING else size
        op.attributes |= {"comm_type": COLLECTIVES.index(what), "pg_name": groups[int(graph.group[row])]}
    else:
        own = size
        op.attributes["comm_dst" if op.type == "COMM_SEND_NODE" else "comm_src"] = int(graph.peer[row])
        op.attributes["comm_tag"] = 0
    op.attributes["comm_size"] = round(own)
