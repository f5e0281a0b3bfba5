"""Chakra traces: a protobuf file written byte by byte here, its JSON form, and broken files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import SynclineError
from syncline.workload import protobuf_wire as wire
from syncline.workload.chakra import read_chakra, read_ops
from syncline.workload.graph import Op


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def attribute(name: str, field: int, value: int) -> bytes:
    return data(10, data(1, name.encode()) + number(field, value))


def operation(ident: int, name: str, kind: int, deps: list[int], micros: int, *attributes: bytes) -> bytes:
    packed = b"".join(varint(d) for d in deps)
    body = number(1, ident) + data(2, name.encode()) + number(3, kind) + number(7, micros) + b"".join(attributes)
    return body + (data(5, packed) if deps else b"")


def trace() -> bytes:
    ops = [
        operation(1, "forward", 4, [], 100, attribute("num_ops", 9, 10**9)),
        operation(2, "[metadata]", 1, [1], 0),
        operation(3, "grads", 7, [2], 50, attribute("comm_type", 9, 0), attribute("comm_size", 9, 1 << 20)),
        operation(4, "update", 4, [3], 10),
    ]
    return b"".join(varint(len(m)) + m for m in (data(1, b"0.0.4"), *ops))


@pytest.mark.parametrize("packed", [False, True])
def test_a_protobuf_trace_is_a_workload(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "trace.0.et"
    path.write_bytes(gzip.compress(trace()) if packed else trace())
    workload = read_chakra([path, path])
    assert len(workload) == 6 and workload.num_ranks == 2
    assert workload.names == ("forward", "all_reduce: grads", "update")
    assert workload.kind[:3].tolist() == [Op.COMPUTE, Op.COLLECTIVE, Op.COMPUTE]
    assert workload.size_bytes[1] == 1 << 20 and workload.flops[0] == 1e9 and workload.ranks[1] == 2
    assert np.allclose(workload.duration_s[:3], [100e-6, 50e-6, 10e-6])
    assert workload.dependencies(1).tolist() == [0]  # through the metadata operation


def test_the_json_form_says_the_same(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "name": "forward", "type": "COMP_NODE", "durationMicros": "100"},
        {"id": "3", "name": "grads", "type": "COMM_COLL_NODE", "dataDeps": ["1"], "durationMicros": "50",
         "attr": [{"name": "comm_size", "int64Val": "1048576"}, {"name": "comm_type", "int64Val": "7"}]},
    ]  # fmt: skip
    one = tmp_path / "one.json"
    one.write_text(json.dumps({"schema": "1", "nodes": rows}))
    many = tmp_path / "many.json"
    many.write_text("\n".join(json.dumps(row) for row in rows))
    for path in (one, many):
        workload = read_chakra(path)
        assert workload.names == ("forward", "reduce_scatter: grads")
        assert workload.size_bytes[1] == 1048576 and workload.dependencies(1).tolist() == [0]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_clear_error_or_operations(content: bytes) -> None:
    path = Path("/dev/null")
    try:
        list(wire.messages(content))
        for message in wire.messages(content):
            list(wire.fields(message))
    except SynclineError as error:
        assert error.message
    assert path.exists()


def test_a_truncated_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.et"
    path.write_bytes(trace()[:-3])
    with pytest.raises(SynclineError, match="bytes, but"):
        list(read_ops(path))
    path.write_bytes(b"")
    with pytest.raises(SynclineError, match="empty"):
        list(read_ops(path))
    with pytest.raises(SynclineError, match="cannot read"):
        list(read_ops(tmp_path / "none.et"))
