"""Chakra execution traces (MLCommons) as Workloads: the protobuf form (.et) and its JSON form.

    workload = read_chakra(["trace.0.et", "trace.1.et"])        # one file a rank

Field numbers are those of the public schema (mlcommons/chakra, schema/protobuf/et_def.proto). A file is a metadata
message and then one message an operation, each preceded by its size; gzip is recognised.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.errors import DescriptionError, FileError
from syncline.workload import protobuf_wire as wire
from syncline.workload.graph import GraphBuilder, Op, Workload

TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip
COLLECTIVES = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
               "reduce_scatter_block", "barrier")  # fmt: skip
_KIND = {"MEM_LOAD_NODE": Op.MEMORY, "MEM_STORE_NODE": Op.MEMORY, "COMP_NODE": Op.COMPUTE, "COMM_SEND_NODE": Op.SEND,
         "COMM_RECV_NODE": Op.RECV, "COMM_COLL_NODE": Op.COLLECTIVE}  # fmt: skip
MAX_BYTES = 2 * 2**30
_SIGNED, _ZIGZAG, _REAL = {7, 9, 23, 25}, {15, 17}, {3, 5}


@dataclass
class TraceOp:
    """One operation of a trace as it is written."""

    number: int = 0
    name: str = ""
    type: str = "COMP_NODE"
    deps: list[int] = field(default_factory=list)
    start_us: float = 0.0
    duration_us: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)


def read_chakra(paths: str | Path | Sequence[str | Path], *, name: str = "chakra trace") -> Workload:
    """Return the workload of one or several trace files, a rank each."""
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    builder = GraphBuilder(name, {"source": "Chakra execution trace", "files": len(files)})
    for rank, path in enumerate(files):
        try:
            _add_rank(builder, rank, list(read_ops(path)), len(files))
        except DescriptionError as error:
            error.where = error.where or str(path)
            raise
    return builder.build()


def read_ops(path: str | Path) -> Iterator[TraceOp]:
    """Yield the operations of one file."""
    data = file_content(Path(path))
    text = data.lstrip()[:1]
    if text in (b"{", b"["):
        yield from (_from_json(item) for item in _json_items(data))
        return
    for number, message in enumerate(wire.messages(data)):
        if number:  # the first message is metadata
            yield _from_wire(message)


def file_content(path: Path) -> bytes:
    """Return a trace file's bytes, unpacked."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f'"{path}" has more than {MAX_BYTES // 2**30} GiB.', hint="Cut the trace to a step.")
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
            data = unpacker.decompress(data, MAX_BYTES)
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.', hint="Name a .et or .json trace.") from None
    except (zlib.error, gzip.BadGzipFile):
        raise FileError(f'"{path}" is a broken gzip file.') from None
    if not data:
        raise DescriptionError("the trace is empty.", where=str(path))
    return data


def _from_wire(message: bytes) -> TraceOp:
    op = TraceOp()
    for number, kind, value in wire.fields(message):
        if number == 1:
            op.number = int(value) if isinstance(value, int) else 0
        elif number == 2:
            op.name = _text(value)
        elif number == 3 and isinstance(value, int):
            op.type = TYPES[value] if value < len(TYPES) else "METADATA_NODE"
        elif number in (4, 5):
            op.deps += wire.numbers(kind, value)
        elif number == 6 and isinstance(value, int):
            op.start_us = float(value)
        elif number == 7 and isinstance(value, int):
            op.duration_us = float(value)
        elif number == 10 and isinstance(value, bytes):
            _attribute(op.attributes, value)
    return op


def _attribute(into: dict[str, Any], message: bytes) -> None:
    name = ""
    found: Any = None
    for number, kind, value in wire.fields(message):
        if number == 1:
            name = _text(value)
        elif number == 29:
            found = _text(value)
        elif isinstance(value, int) and number > 2:
            found = _scalar(number, kind, value)
    if name and found is not None:
        into[name] = found


def _scalar(number: int, kind: int, value: int) -> float | int | bool:
    if number in _REAL:
        return wire.real(kind, value)
    if number == 27:
        return bool(value)
    if number in _ZIGZAG:
        return wire.zigzag(value)
    return wire.signed(value) if number in _SIGNED else value


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _json_items(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the operations of a JSON trace: a list, an object with `nodes`, or objects one after another."""
    decoder = json.JSONDecoder()
    try:
        text = data.decode("utf-8")
        at = 0
        while at < len(text):
            while at < len(text) and text[at].isspace():
                at += 1
            if at >= len(text):
                return
            found, at = decoder.raw_decode(text, at)
            inner = found.get("nodes", [found]) if isinstance(found, dict) else found
            yield from (item for item in inner if isinstance(item, dict) and "id" in item)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"not a JSON trace: {error}.") from None


def _from_json(item: Mapping[str, Any]) -> TraceOp:
    try:
        kind = item.get("type", "COMP_NODE")
        kind = TYPES[kind] if isinstance(kind, int) and 0 <= kind < len(TYPES) else str(kind)
        deps = [*_either(item, "ctrlDeps", "ctrl_deps"), *_either(item, "dataDeps", "data_deps")]
        return TraceOp(
            number=int(item["id"]), name=str(item.get("name", "")), type=kind, deps=[int(d) for d in deps],
            start_us=float(item.get("startTimeMicros", item.get("start_time_micros", 0)) or 0),
            duration_us=float(item.get("durationMicros", item.get("duration_micros", 0)) or 0),
            attributes={str(a.get("name")): _json_value(a) for a in item.get("attr", []) if isinstance(a, dict)},
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise DescriptionError(f"an operation of the trace cannot be read: {error}.") from None


def _either(item: Mapping[str, Any], *names: str) -> list[Any]:
    found: Any = next((item[name] for name in names if name in item), [])
    return found if isinstance(found, list) else [found]


def _json_value(attribute: Mapping[str, Any]) -> Any:
    for key, value in attribute.items():
        if key.lower().endswith(("val", "_val")):
            number = isinstance(value, str) and value.lstrip("-").isdigit() and not key.lower().startswith("string")
            return int(value) if number else value
    return attribute.get("value")


def _add_rank(builder: GraphBuilder, rank: int, ops: list[TraceOp], num_ranks: int) -> None:
    """Add one rank's operations; those that are neither compute nor communication are passed over."""
    ops = sorted(ops, key=lambda op: op.number)
    parents = {op.number: op for op in ops}
    place: dict[int, int] = {}
    for op in ops:
        kind = _KIND.get(op.type)
        if kind is None:
            continue
        size = float(op.attributes.get("comm_size") or op.attributes.get("tensor_size") or 0)
        moves = kind in (Op.COLLECTIVE, Op.SEND, Op.RECV)
        name = _name(op, kind)
        place[op.number] = builder.add(
            rank, kind, name, stream=1 if moves else 0, flops=float(op.attributes.get("num_ops") or 0),
            size_bytes=size if moves else 0.0, axis="world" if moves else "",
            ranks=int(op.attributes.get("group_size") or num_ranks), duration_s=op.duration_us / 1e6 or float("nan"),
        )  # fmt: skip
    for op in ops:
        if op.number in place:
            builder.wait(place[op.number], *_real_deps(op, parents, place))


def _real_deps(op: TraceOp, parents: Mapping[int, TraceOp], place: Mapping[int, int]) -> list[int]:
    """Return what an operation waits for, looking through operations that are passed over."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = list(op.deps)
    while waiting:
        number = waiting.pop()
        if number in seen or number == op.number:
            continue
        seen.add(number)
        if number in place:
            found.append(place[number])
        elif number in parents:
            waiting += parents[number].deps
    return sorted(found)


def _name(op: TraceOp, kind: Op) -> str:
    if kind is Op.COLLECTIVE:
        code = op.attributes.get("comm_type", 0)
        word = COLLECTIVES[code] if isinstance(code, int) and 0 <= code < len(COLLECTIVES) else str(code).lower()
        return f"{word}: {op.name}"[:120]
    return op.name[:120] or op.type
