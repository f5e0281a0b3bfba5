"""Chakra execution traces (MLCommons) as Workloads.

    workload = read_chakra(["trace.0.et", "trace.1.et"])        # one file a rank

An operation runs when what it depends on has ended; compute, the host, and each direction of communication are streams
of their own. `comm_size` is what a rank puts in, so an all-gather's whole buffer is that times the group. Groups are
those of `pg_name`, with their ranks from the trace's own list or from ASTRA-sim's `comm_group.json` beside the files.
Across ranks a receive ends with its send (`comm_src`, `comm_dst`, `comm_tag`), and collectives that carry no time of
their own start together.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from syncline.errors import DescriptionError
from syncline.workload.graph import GraphBuilder, Op, Workload
from syncline.workload.traces.chakra_file import TraceOp, read_ops

COLLECTIVES = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
               "reduce_scatter_block", "barrier")  # fmt: skip
#: Collectives whose whole buffer is what comes out, on a rank that puts in its part.
GROWING = ("all_gather", "gather")
GROUPS_FILE = "comm_group.json"
_KIND = {"MEM_LOAD_NODE": Op.MEMORY, "MEM_STORE_NODE": Op.MEMORY, "COMP_NODE": Op.COMPUTE, "COMM_SEND_NODE": Op.SEND,
         "COMM_RECV_NODE": Op.RECV, "COMM_COLL_NODE": Op.COLLECTIVE}  # fmt: skip
_MOVES = (Op.COLLECTIVE, Op.SEND, Op.RECV)
Groups = Mapping[str, tuple[int, ...]]


def read_chakra(paths: str | Path | Sequence[str | Path], *, name: str = "chakra trace") -> Workload:
    """Return the workload of one or several trace files, a rank each."""
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    builder = GraphBuilder(name, {"source": "Chakra execution trace", "files": len(files)})
    given = _groups_file(files[0].parent / GROUPS_FILE)
    meetings = _Meetings(builder)
    for rank, path in enumerate(files):
        try:
            ops = list(read_ops(path))
            _Rank(builder, rank, len(files), {**_groups_in(ops), **given}, meetings).add(ops)
        except DescriptionError as error:
            error.where = error.where or str(path)
            raise
    meetings.settle()
    return builder.build()


class _Rank:
    """Adds one rank's operations; those that are neither compute nor communication are passed over."""

    def __init__(self, builder: GraphBuilder, rank: int, num_ranks: int, groups: Groups, meetings: _Meetings) -> None:
        self.builder, self.rank, self.num_ranks, self.groups, self.meetings = builder, rank, num_ranks, groups, meetings
        self.streams: dict[tuple[str, int], int] = {}
        self.place: dict[int, int] = {}

    def add(self, ops: list[TraceOp]) -> None:
        by_number = {op.number: op for op in ops}
        for op in _in_order(by_number):
            kind = _KIND.get(op.type)
            if kind is not None:
                self.place[op.number] = self._add(op, kind)
        for op in ops:
            if op.number in self.place:
                self.builder.wait(self.place[op.number], *self._waits(op, by_number))

    def _add(self, op: TraceOp, kind: Op) -> int:
        known = op.attributes
        word = _word(op) if kind is Op.COLLECTIVE else ""
        members = self.groups.get(str(known.get("pg_name", "")), ())
        ranks = 2 if kind in (Op.SEND, Op.RECV) else len(members) or self.num_ranks
        size = _number(op, "comm_size" if kind in _MOVES else "tensor_size") or _number(op, "tensor_size")
        added = self.builder.add(
            self.rank, kind, _label(op, kind, word), stream=self._stream(op, kind), flops=_number(op, "num_ops"),
            size_bytes=size * (ranks if word in GROWING else 1), axis="world" if kind in _MOVES else "", ranks=ranks,
            duration_s=op.duration_us / 1e6 or math.nan,
        )  # fmt: skip
        if kind is Op.COLLECTIVE and not op.duration_us:
            self.meetings.collective(added, self.rank, (str(known.get("pg_name", "")), members))
        elif kind is Op.SEND and "comm_dst" in known:
            self.meetings.send(added, (self.rank, known["comm_dst"], known.get("comm_tag", 0)))
        elif kind is Op.RECV and "comm_src" in known:
            self.meetings.receive(added, (known["comm_src"], self.rank, known.get("comm_tag", 0)))
        return added

    def _stream(self, op: TraceOp, kind: Op) -> int:
        """Return where an operation queues: stream of the device, thread of the host, direction of the network."""
        if kind in _MOVES:
            key = ("in" if kind is Op.RECV else "out", int(_number(op, "stream")))
        elif op.attributes.get("is_cpu_op") is True:
            key = ("host", int(_number(op, "tid")))
        else:
            key = ("device", int(_number(op, "stream")))
        return self.streams.setdefault(key, len(self.streams))

    def _waits(self, op: TraceOp, by_number: Mapping[int, TraceOp]) -> list[int]:
        """Return what an operation waits for, looking through operations that are passed over."""
        found: list[int] = []
        seen = {op.number}
        waiting = list(op.deps)
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in self.place:
                found.append(self.place[number])
            elif number in by_number:
                waiting += by_number[number].deps
        return sorted(found)


class _Meetings:
    """What ranks do together: receives with their sends, and collectives of one group in its order."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.sends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self.receives: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self.collectives: dict[tuple[str, tuple[int, ...]], dict[int, list[int]]] = defaultdict(dict)

    def send(self, op: int, way: tuple[int, ...]) -> None:
        self.sends[way].append(op)

    def receive(self, op: int, way: tuple[int, ...]) -> None:
        self.receives[way].append(op)

    def collective(self, op: int, rank: int, group: tuple[str, tuple[int, ...]]) -> None:
        self.collectives[group].setdefault(rank, []).append(op)

    def settle(self) -> None:
        """Add what each waits for across ranks."""
        for way, received in self.receives.items():
            for receive, send in zip(received, self.sends[way], strict=False):
                self.builder.wait(receive, send)
        for by_rank in self.collectives.values():
            for together in zip(*by_rank.values(), strict=False):
                self.builder.meet(together)


def _in_order(by_number: Mapping[int, TraceOp]) -> Iterator[TraceOp]:
    """Yield operations so that each follows what it depends on, the lowest number first."""
    waits = {number: {dep for dep in op.deps if dep in by_number} for number, op in by_number.items()}
    followers: dict[int, list[int]] = defaultdict(list)
    for number, deps in waits.items():
        for dep in deps:
            followers[dep].append(number)
    ready = [number for number, deps in waits.items() if not deps]
    heapq.heapify(ready)
    left = {number: len(deps) for number, deps in waits.items()}
    while ready:
        number = heapq.heappop(ready)
        yield by_number[number]
        del left[number]
        for nxt in followers[number]:
            left[nxt] -= 1
            if not left[nxt]:
                heapq.heappush(ready, nxt)
    yield from (by_number[number] for number in left)  # a cycle, which the workload then names


def _number(op: TraceOp, name: str) -> float:
    value = op.attributes.get(name) or 0
    if not isinstance(value, (int, float, str)):
        raise DescriptionError(f'operation {op.number}: "{name}" is {value!r}, not a number.')
    try:
        return float(value)
    except ValueError:
        raise DescriptionError(f'operation {op.number}: "{name}" is {value!r}, not a number.') from None


def _word(op: TraceOp) -> str:
    code = op.attributes.get("comm_type", 0)
    return COLLECTIVES[code] if isinstance(code, int) and 0 <= code < len(COLLECTIVES) else str(code).lower()


def _label(op: TraceOp, kind: Op, word: str) -> str:
    if kind is Op.COLLECTIVE:
        return f"{word}: {op.name}"[:120]
    return op.name[:120] or op.type


def _groups_in(ops: list[TraceOp]) -> Groups:
    """Return the groups that a trace converted from PyTorch lists in its metadata operation."""
    found: dict[str, tuple[int, ...]] = {}
    for op in ops:
        start, end = op.inputs.find("[{"), op.inputs.rfind("}]")
        if "process_group:init" not in op.name or start < 0 or end < 0:
            continue
        try:
            for group in json.loads(op.inputs[start : end + 2]):
                ranks = group.get("ranks") or range(int(group.get("group_size") or 0))
                found[str(group["pg_name"])] = tuple(int(rank) for rank in ranks)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DescriptionError(f"operation {op.number}: the list of process groups is broken: {error}.") from None
    return found


def _groups_file(path: Path) -> Groups:
    """Return the groups of ASTRA-sim's file beside the traces; none where there is no such file."""
    if not path.is_file():
        return {}
    try:
        return {str(name): tuple(int(rank) for rank in ranks) for name, ranks in json.loads(path.read_bytes()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DescriptionError(f'a file of groups is {{"name": [ranks], ...}}: {error}.', where=str(path)) from None
