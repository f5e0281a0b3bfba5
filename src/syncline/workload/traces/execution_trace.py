"""PyTorch's own execution traces (torch.profiler.ExecutionTraceObserver) as Workloads.

    workload = read_execution(["et.0.json", "et.1.json"])       # one file a rank

Such a trace has calls inside calls with their tensors, and no times. Operations are matrix products, with their
arithmetic counted, and the outermost calls beside them; how long they take only a price says. Collectives are the calls
that NCCL records (`record_param_comms`, with group and sizes among its attributes) or, with other backends, `c10d::`
calls, whose sizes are those of their tensors. They run beside compute: each waits for what was computed when it was
launched, as PyTorch's streams do, and whoever reads a storage waits for whoever wrote it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.errors import DescriptionError
from syncline.timeline.recording.kineto import RECORDED, WIDTHS
from syncline.workload.graph import GraphBuilder, Op, Workload
from syncline.workload.traces.chakra_file import file_content

#: What calls of torch.distributed are called here; the longest name that a call contains counts.
WORDS = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allgather": "all_gather", "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "alltoall": "all_to_all", "all_to_all": "all_to_all", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier", "send": "send", "recv": "recv",
}  # fmt: skip
#: Collectives whose whole buffer is what comes out, on a rank that puts in its part.
GROWING = ("all_gather",)
#: Where the two factors of a matrix product are among the arguments.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}


def read_execution(paths: str | Path | Sequence[str | Path], *, name: str = "execution trace") -> Workload:
    """Return the workload of one or several execution traces, a rank each."""
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    builder = GraphBuilder(name, {"source": "PyTorch execution trace", "files": len(files)})
    for rank, path in enumerate(files):
        try:
            _add_rank(builder, rank, _calls(file_content(Path(path))), len(files))
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError) as error:
            why = f"a node has no {error}" if isinstance(error, KeyError) else error
            raise DescriptionError(
                f"not an execution trace as it is read here: {why}.", where=str(path),
                hint="Those of PyTorch 2.1 and newer are (schema 1.0.2-chakra.0.0.4): record it again.",
            ) from None  # fmt: skip
    return builder.build()


def word_of(name: str) -> str:
    """Return what a call of torch.distributed is called here; empty where it is none that sends."""
    low = name.lower()
    found = [word for word in WORDS if word in low]
    return WORDS[max(found, key=len)] if found else ""


def add_transfer(
    builder: GraphBuilder, rank: int, word: str, name: str, *, stream: int, size_bytes: float, ranks: int,
    duration_s: float = math.nan, deps: tuple[int, ...] = (),
) -> int:  # fmt: skip
    """Add a collective, a send or a receive by its word (`word_of`), and return its number."""
    kind = {"send": Op.SEND, "recv": Op.RECV}.get(word, Op.COLLECTIVE)
    return builder.add(
        rank, kind, f"{word or 'collective'}: {name}"[:120], stream=stream, size_bytes=size_bytes, axis="world",
        ranks=ranks, duration_s=duration_s, deps=deps,
    )  # fmt: skip


def _calls(data: bytes) -> list[Mapping[str, Any]]:
    loaded = json.loads(data)
    calls = loaded["nodes"]
    return sorted((call for call in calls if isinstance(call, dict)), key=lambda call: int(call["id"]))


def _add_rank(builder: GraphBuilder, rank: int, calls: list[Mapping[str, Any]], num_ranks: int) -> None:
    parent = {int(call["id"]): int(call["ctrl_deps"]) for call in calls}
    recorded = {int(call["ctrl_deps"]) for call in calls if call["name"] == RECORDED}
    around = _around(calls, parent)
    world = _group_size(calls) or num_ranks
    writer: dict[int, int] = {}
    taken: set[int] = set()
    last: int | None = None
    for call in calls:
        name, number = str(call["name"]), int(call["id"])
        if parent[number] in taken:
            taken.add(number)
            continue
        moves = name == RECORDED or (name.startswith("c10d::") and number not in recorded)
        if moves:
            op = _collective(builder, rank, call, world)
        elif name.startswith("aten::") and number not in around:
            op = last = builder.add(rank, Op.COMPUTE, name[:120], flops=_flops(name, call))
        else:
            continue
        taken.add(number)
        if op is None:
            continue
        if moves and last is not None:
            builder.wait(op, last)
        read, written = list(_tensors(call["inputs"]["values"])), list(_tensors(call["outputs"]["values"]))
        builder.wait(op, *sorted({writer[t[1]] for t in (*read, *written) if t[1] in writer} - {op, last}))
        # A collective of NCCL's record names what it reads only; it writes in place or to the tensors of its call.
        for tensor in written or (read if name == RECORDED else []):
            writer[tensor[1]] = op


def _around(calls: list[Mapping[str, Any]], parent: Mapping[int, int]) -> set[int]:
    """Return the calls that have a matrix product or a collective inside: those stand for what they do."""
    found: set[int] = set()
    for call in calls:
        if call["name"] in _PRODUCTS or call["name"] == RECORDED or str(call["name"]).startswith("c10d::"):
            number = parent[int(call["id"])]
            while number in parent and number not in found:
                found.add(number)
                number = parent[number]
    return found


def _collective(builder: GraphBuilder, rank: int, call: Mapping[str, Any], world: int) -> int | None:
    attributes = {a["name"]: a["value"] for a in call.get("attrs", ()) if isinstance(a, dict) and "value" in a}
    word = word_of(str(attributes.get("collective_name") or call["name"]))
    if not word:  # waits and the making of groups are recorded too
        return None
    ranks = int(attributes.get("pg_size") or 0) or world
    if "in_msg_nelems" in attributes:
        width = WIDTHS.get(str(attributes.get("dtype", "")).lower(), 4)
        size = float(max(int(attributes["in_msg_nelems"]), int(attributes.get("out_msg_nelems") or 0)) * width)
    else:
        size = max(_bytes(call["inputs"]["values"]), _bytes(call["outputs"]["values"]))
    group = f" in {attributes['pg_name']}" if attributes.get("pg_name") else ""
    return add_transfer(builder, rank, word, f"{call['name']}{group}", stream=1, size_bytes=size, ranks=ranks)


def _group_size(calls: list[Mapping[str, Any]]) -> int:
    """Return the size of the group of everyone, as the trace's list of groups has it; 0 where there is none."""
    for call in calls:
        if str(call["name"]).startswith("## process_group:init"):
            groups = json.loads(call["inputs"]["values"][0])
            return max((int(group.get("group_size") or 0) for group in groups), default=0)
    return 0


def _tensors(values: Any) -> Iterator[Sequence[Any]]:
    """Yield the tensors among the values of a call: number, storage, offset, elements, bytes of one, device."""
    if not isinstance(values, list):
        return
    if len(values) == 6 and isinstance(values[5], str) and all(isinstance(v, int) for v in values[:5]):
        yield values
        return
    for value in values:
        yield from _tensors(value)


def _bytes(values: Any) -> float:
    """Return the bytes of the largest argument: a tensor, or a list of them together."""
    return float(max((sum(int(t[3]) * int(t[4]) for t in _tensors(value)) for value in values), default=0))


def _flops(name: str, call: Mapping[str, Any]) -> float:
    """Return the operations of a matrix product; 0 for everything else."""
    shapes = call["inputs"]["shapes"]
    at = _PRODUCTS.get(name)
    if at is None or len(shapes) < at + 2:
        return 0.0
    left, right = shapes[at], shapes[at + 1]
    return 2.0 * math.prod(left) * right[-1] if left and right else 0.0
