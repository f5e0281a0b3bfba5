"""Chakra execution traces written: the protobuf form (.et) that `chakra_file.py` and ASTRA-sim's feeder read.

write_ops(Path("step.0.et"), [TraceOp(number=1, name="mm", type="COMP_NODE", duration_us=12)])
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from syncline.describe.files import atomic
from syncline.workload.traces.chakra_file import TYPES, TraceOp

SCHEMA = "0.0.4"
_DOUBLE, _INT32, _INT64, _BOOL, _STRING = 3, 7, 9, 27, 29
_SHORT = ("comm_src", "comm_dst", "comm_tag", "comm_priority")  # those that the feeder reads as 32 bits


def write_ops(path: Path, ops: Iterable[TraceOp]) -> None:
    """Write operations as one file: metadata and then a message each, preceded by its size."""
    messages = [_text(1, SCHEMA), *map(_op, ops)]
    with atomic(path) as file:
        file.writelines(_varint(len(each)) + each for each in messages)


def _op(op: TraceOp) -> bytes:
    deps = b"".join(_varint(dep) for dep in op.deps)
    head = _number(1, op.number) + _text(2, op.name) + _number(3, TYPES.index(op.type))
    packed = _field(5, 2) + _varint(len(deps)) + deps if deps else b""
    when = _number(6, round(op.start_us)) + _number(7, round(op.duration_us))
    return head + packed + when + b"".join(_attribute(name, value) for name, value in op.attributes.items())


def _attribute(name: str, value: object) -> bytes:
    if isinstance(value, bool):
        body = _field(_BOOL, 0) + _varint(value)
    elif isinstance(value, int):
        body = _field(_INT32 if name in _SHORT else _INT64, 0) + _varint(value & 0xFFFFFFFFFFFFFFFF)
    elif isinstance(value, float):
        body = _field(_DOUBLE, 1) + struct.pack("<d", value)
    else:
        body = _text(_STRING, str(value))
    message = _text(1, name) + body
    return _field(10, 2) + _varint(len(message)) + message


def _number(number: int, value: int) -> bytes:
    return _field(number, 0) + _varint(value)


def _text(number: int, value: str) -> bytes:
    data = value.encode()
    return _field(number, 2) + _varint(len(data)) + data


def _field(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
