"""The operations of one Chakra execution trace file: protobuf (.et), its JSON form, or the feeder's own JSON.

    for op in read_ops("trace.0.et"): ...

Field numbers are those of the public schema (mlcommons/chakra, schema/protobuf/et_def.proto). A protobuf file is a
metadata message and then one message an operation, each preceded by its size; gzip is recognised.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.errors import DescriptionError, FileError
from syncline.workload.traces import protobuf_wire as wire

TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE")  # fmt: skip
MAX_BYTES = 2 * 2**30
# What an attribute's value is, by field number; the list of such values has the next number.
_DOUBLE, _FLOAT, _SFIXED32, _SFIXED64, _BOOL, _STRING, _BYTES = 3, 5, 23, 25, 27, 29, 31
_FIXED = {_DOUBLE: wire.FIXED64, _FLOAT: wire.FIXED32, 19: wire.FIXED32, 21: wire.FIXED64, _SFIXED32: wire.FIXED32,
          _SFIXED64: wire.FIXED64}  # fmt: skip
_SIGNED, _ZIGZAG = {7: 64, 9: 64, _SFIXED32: 32, _SFIXED64: 64}, {15, 17}
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


def read_ops(path: str | Path) -> Iterator[TraceOp]:
    """Yield the operations of one file."""
    data = file_content(Path(path))
    if data.lstrip()[:1] in (b"{", b"["):
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
    for number, _, value in wire.fields(message):
        if isinstance(value, int):
            if number == 1:
                op.number = value
            elif number == 3:
                op.type = _type(value)
            elif number in (4, 5):
                op.deps.append(value)
            elif number == 6:
                op.start_us = float(value)
            elif number == 7:
                op.duration_us = float(value)
        elif number == 2:
            op.name = _text(value)
        elif number in (4, 5):
            op.deps += wire.numbers(value)
        elif number == 8:
            op.inputs = "".join(_text(v) for n, _, v in wire.fields(value) if n == 1 and isinstance(v, bytes))
        elif number == 10:
            _attribute(op.attributes, value)
    return op


def _attribute(into: dict[str, Any], message: bytes) -> None:
    name = ""
    found: Any = None
    for number, _, value in wire.fields(message):
        if number == 1 and isinstance(value, bytes):
            name = _text(value)
        elif 2 < number <= _BYTES and number % 2:
            found = _scalar(number, value)
        elif 2 < number <= _BYTES + 1 and isinstance(value, bytes):
            found = list(_items(number - 1, value))
    if name and found is not None:
        into[name] = found


def _items(number: int, message: bytes) -> Iterator[Any]:
    """Yield the values of a list whose single values have this field number."""
    for at, _, value in wire.fields(message):
        if at != 1:
            continue
        if number in (_STRING, _BYTES):
            yield _scalar(number, value)
        else:
            yield from (_scalar(number, one) for one in wire.numbers(value, _FIXED.get(number, wire.VARINT)))


def _scalar(number: int, value: int | bytes) -> Any:
    if isinstance(value, bytes):
        return value if number == _BYTES else _text(value)
    if number in (_DOUBLE, _FLOAT):
        return wire.real(value, _FIXED[number])
    if number == _BOOL:
        return bool(value)
    if number in _ZIGZAG:
        return wire.zigzag(value)
    return wire.signed(value, _SIGNED[number]) if number in _SIGNED else value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _type(value: Any) -> str:
    """Return the name of a kind of operation, given as a number or as a name; those unknown here are metadata."""
    if isinstance(value, int):
        return TYPES[value] if 0 <= value < len(TYPES) else "METADATA_NODE"
    return str(value)


def _json_items(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the operations of a JSON trace: a list, an object that has one, or objects one after another.

    Protobuf's JSON leaves out what is zero, so an operation is told from the metadata before it by its name or type.
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
