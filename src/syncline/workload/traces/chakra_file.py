"""One Chakra execution trace file: protobuf (.et), its JSON form, or the feeder's own JSON.

    for op in read_ops("trace.0.et"): ...
    write_ops(Path("step.0.et"), [TraceOp(number=1, name="mm", type="COMP_NODE", duration_us=12)])

Names and numbers are those of the public schema (mlcommons/chakra, schema/protobuf/et_def.proto). A protobuf file is a
metadata message and then one message an operation, each preceded by its size; gzip is recognised.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from syncline.describe.files import atomic
from syncline.errors import DescriptionError, FileError

TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE")  # fmt: skip
MAX_BYTES = 2 * 2**30
SCHEMA = "0.0.4"
#: Kinds of an attribute's value: each has a field for one and, with the next number, one for a list, from 3 on.
_SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
            "sfixed32", "sfixed64", "bool", "string", "bytes")  # fmt: skip
_NODE = {"id": "uint64", "name": "bytes", "type": "int32", "ctrl_deps": "uint64*", "data_deps": "uint64*",
         "start_time_micros": "uint64", "duration_micros": "uint64", "inputs": "IOInfo", "outputs": "IOInfo",
         "attr": "Attribute*"}  # fmt: skip
_SHORT = ("comm_src", "comm_dst", "comm_tag", "comm_priority")  # those that the feeder reads as 32 bits
#: Keys of an operation in the JSON forms, without case and underscores; others are attributes in the feeder's form.
_KEYS = ("id", "name", "type", "nodetype", "ctrldeps", "datadeps", "starttimemicros", "durationmicros", "runtime",
         "inputs", "outputs", "attr")  # fmt: skip


@dataclass
class TraceOp:
    """One operation of a trace as it is written."""

    number: int = 0
    name: str = ""
    type: str = "INVALID_NODE"
    deps: list[int] = field(default_factory=list)
    start_us: float = 0.0
    duration_us: float = 0.0
    inputs: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


@cache
def _messages() -> dict[str, Any]:
    """Return the message classes of the schema: Metadata, Node and Attribute."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="chakra", syntax="proto3")

    def declare(name: str, fields: Iterable[tuple[int, str, str]], oneof: bool = False) -> None:
        message = file.message_type.add(name=name)
        if oneof:
            message.oneof_decl.add(name="value")
        for number, key, kind in fields:
            made = message.field.add(name=key, number=number, label=3 if kind.endswith("*") else 1)
            if (plain := kind.rstrip("*")) in _SCALARS:
                made.type = getattr(made, f"TYPE_{plain.upper()}")
            else:
                made.type, made.type_name = made.TYPE_MESSAGE, f".chakra.{plain}"
            if oneof and number > 2:
                made.oneof_index = 0

    for kind in _SCALARS:
        declare(f"{kind}_list", [(1, "values", f"{kind}*")])
    values = [(3 + 2 * at, f"{kind}_val", kind) for at, kind in enumerate(_SCALARS)]
    values += [(4 + 2 * at, f"{kind}_list", f"{kind}_list") for at, kind in enumerate(_SCALARS)]
    declare("Attribute", [(1, "name", "string"), *values], oneof=True)
    declare("Metadata", [(1, "version", "bytes")])
    declare("IOInfo", [(1, "values", "bytes")])
    declare("Node", [(number, key, kind) for number, (key, kind) in enumerate(_NODE.items(), 1)])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix("chakra."): message for name, message in made.items()}


def read_ops(path: str | Path) -> Iterator[TraceOp]:
    """Yield the operations of one file."""
    data = file_content(Path(path))
    if data.lstrip()[:1] in (b"{", b"["):
        yield from (_from_json(item) for item in _json_items(data))
        return
    from google.protobuf import message, proto

    stream, kinds = io.BytesIO(data), _messages()
    try:
        proto.parse_length_prefixed(kinds["Metadata"], stream)
        while (node := proto.parse_length_prefixed(kinds["Node"], stream)) is not None:
            yield _from_node(node)
    except (message.DecodeError, ValueError) as error:
        raise DescriptionError(
            f"the trace is broken before byte {stream.tell():,} of {len(data):,}: {error}.",
            hint="Copy or export it again.",
        ) from None


def write_ops(path: Path, ops: Iterable[TraceOp]) -> None:
    """Write operations as one file: metadata and then a message each, preceded by its size."""
    from google.protobuf import proto

    kinds = _messages()
    with atomic(path) as file:
        proto.serialize_length_prefixed(kinds["Metadata"](version=SCHEMA.encode()), file)
        for op in ops:
            node = kinds["Node"](
                id=op.number, name=op.name.encode(), type=TYPES.index(op.type), data_deps=op.deps,
                start_time_micros=round(op.start_us), duration_micros=round(op.duration_us),
            )  # fmt: skip
            for name, value in op.attributes.items():
                whole = "int32_val" if name in _SHORT else "int64_val"
                key = {bool: "bool_val", int: whole, float: "double_val"}.get(type(value), "string_val")
                node.attr.add(name=name, **{key: str(value) if key == "string_val" else value})
            proto.serialize_length_prefixed(node, file)


def file_content(path: Path) -> bytes:
    """Return a trace file's bytes, unpacked."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f'"{path}" has more than {MAX_BYTES // 2**30} GiB.', hint="Cut the trace to a step.")
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, MAX_BYTES)
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.', hint="Name a .et or .json trace.") from None
    except zlib.error:
        raise FileError(f'"{path}" is a broken gzip file.') from None
    if not data:
        raise DescriptionError("the trace is empty.", where=str(path))
    return data


def _from_node(node: Any) -> TraceOp:
    attributes = {}
    for each in node.attr:
        kind = each.WhichOneof("value")
        if each.name and kind:
            value = getattr(each, kind)
            attributes[each.name] = list(value.values) if kind.endswith("_list") else value
    return TraceOp(
        node.id, node.name.decode("utf-8", "replace"), _type(node.type), [*node.ctrl_deps, *node.data_deps],
        float(node.start_time_micros), float(node.duration_micros), node.inputs.values.decode("utf-8", "replace"),
        attributes,
    )  # fmt: skip


def _type(value: Any) -> str:
    """Return the name of a kind of operation, given as a number or as a name; those unknown here are metadata."""
    if isinstance(value, int):
        return TYPES[value] if 0 <= value < len(TYPES) else "METADATA_NODE"
    return str(value)


def _json_items(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the operations of a JSON trace: a list, an object that has one, or objects one after another.

    Protobuf's JSON leaves out what is zero, so a name or a type tells an operation from the metadata before it.
    """
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
            inner: Any = found
            if isinstance(found, dict):
                inner = found.get("nodes", found.get("workload_graph", [found]))
            for item in inner:
                if isinstance(item, dict) and any(key.lower() in ("name", "type", "nodetype") for key in item):
                    yield item
    except (ValueError, TypeError, RecursionError) as error:
        raise DescriptionError(f"not a JSON trace: {error}.") from None


def _from_json(item: Mapping[str, Any]) -> TraceOp:
    plain = {key.lower().replace("_", ""): value for key, value in item.items()}
    inputs = plain.get("inputs")
    try:
        attributes = {key: value for key, value in item.items() if key.lower().replace("_", "") not in _KEYS}
        for attribute in plain.get("attr", []):
            attributes[str(attribute.get("name"))] = _json_value(attribute)
        return TraceOp(
            number=int(plain.get("id", 0)),
            name=str(plain.get("name", "")),
            type=_type(plain.get("type", plain.get("nodetype", 0))),
            deps=[int(dep) for key in ("ctrldeps", "datadeps") for dep in _listed(plain.get(key))],
            start_us=float(plain.get("starttimemicros") or 0),
            duration_us=float(plain.get("durationmicros") or plain.get("runtime") or 0),
            inputs=str(inputs.get("values", "")) if isinstance(inputs, dict) else "",
            attributes=attributes,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise DescriptionError(f"an operation of the trace cannot be read: {error}.") from None


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _json_value(attribute: Mapping[str, Any]) -> Any:
    """Return an attribute's value; protobuf's JSON writes 64-bit numbers as strings."""
    for key, value in attribute.items():
        low = key.lower().replace("_", "")
        whole = "int" in low or "fixed" in low
        if low.endswith("list") and isinstance(value, dict):
            return [int(one) if whole else one for one in _listed(value.get("values"))]
        if low.endswith("val"):
            return int(value) if whole else value
    return attribute.get("value")
