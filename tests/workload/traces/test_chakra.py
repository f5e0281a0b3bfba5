"""Chakra traces, written by google.protobuf from the public schema; what ASTRA-sim wrote; JSON forms; broken files."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from tests.workload.chakra_schema import VERSIONS, Schema, stream

from syncline.errors import DescriptionError, SynclineError
from syncline.fabric import load
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.replay import priced, replay
from syncline.workload.graph import Op, Workload
from syncline.workload.trace import read_trace
from syncline.workload.traces.chakra import read_chakra
from syncline.workload.traces.chakra_file import read_ops

NEWEST = Schema("1.0")


def layers(schema: Schema = NEWEST) -> list[Any]:
    """One step of two layers, data-parallel, as Chakra's text converter lays it out."""
    device = schema.attribute("is_cpu_op", "bool", False)
    ops = schema.attribute("num_ops", "int64", 10**9)
    return [
        schema.metadata(attr=[schema.attribute("schema", "string", "1.0.2-chakra.0.0.4")]),
        schema.node(0, "COMP_NODE_conv_FWD", "COMP_NODE", device, ops, duration_micros=100),
        schema.node(1, "[metadata]", "METADATA_NODE", ctrl_deps=[0]),
        schema.node(2, "COMP_NODE_conv_BWD_WG", "COMP_NODE", data_deps=[1], duration_micros=200),
        schema.collective(3, "COMM_COLL_NODE_conv_ALLREDUCE", "ALL_REDUCE", 1 << 20, data_deps=[2]),
        schema.node(4, "COMP_NODE_conv_BWD_IG", "COMP_NODE", data_deps=[2], duration_micros=150),
    ]


def write(path: Path, *messages: Any) -> Path:
    path.write_bytes(stream(*messages))
    return path


def names(workload: Workload) -> list[str]:
    return [workload.names[label] for label in workload.label]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_published_version_is_read(tmp_path: Path, version: str, packed: bool) -> None:
    path = write(tmp_path / "trace.0.et", *layers(Schema(version)))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    workload = read_chakra(path)
    assert names(workload) == [
        "COMP_NODE_conv_FWD", "COMP_NODE_conv_BWD_WG", "all_reduce: COMM_COLL_NODE_conv_ALLREDUCE",
        "COMP_NODE_conv_BWD_IG",
    ]  # fmt: skip
    assert workload.kind.tolist() == [Op.COMPUTE, Op.COMPUTE, Op.COLLECTIVE, Op.COMPUTE]
    assert workload.size_bytes[2] == 1 << 20 and workload.flops[0] == 1e9
    assert np.allclose(workload.duration_s, [100e-6, 200e-6, np.nan, 150e-6], equal_nan=True)
    assert workload.dependencies(1).tolist() == [0]  # through the metadata operation
    assert workload.dependencies(2).tolist() == [1] and workload.dependencies(3).tolist() == [1]


VALUES = {
    "double": 1.2345, "float": 0.25, "int32": -12345, "int64": -9876543210, "uint32": 12345, "uint64": 2**63,
    "sint32": -12345, "sint64": -9876543210, "fixed32": 2**31, "fixed64": 2**63, "sfixed32": -12345,
    "sfixed64": -9876543210, "bool": True, "string": "12345", "bytes": b"12345",
}  # fmt: skip


def test_attributes_of_every_kind_are_what_was_written(tmp_path: Path) -> None:
    attributes = [NEWEST.attribute(kind, kind, value) for kind, value in VALUES.items()]
    attributes += [NEWEST.attribute(f"{kind}s", kind, [value, value]) for kind, value in VALUES.items()]
    path = write(tmp_path / "t.et", NEWEST.metadata(version="1.0"), NEWEST.node(7, "n", "METADATA_NODE", *attributes))
    (op,) = read_ops(path)
    assert op.number == 7
    assert op.attributes == {**VALUES, **{f"{kind}s": [value, value] for kind, value in VALUES.items()}}


@pytest.mark.parametrize("preserve", [False, True])
def test_protobuf_json_says_the_same(tmp_path: Path, preserve: bool) -> None:
    """`chakra_jsonizer` writes one object after another; what is zero (the first operation's number) is left out."""
    path = tmp_path / "trace.json"
    texts = [json_format.MessageToJson(m, preserving_proto_field_name=preserve) for m in layers()]
    path.write_text("".join(texts))
    assert '"id"' not in texts[1]
    told, read = read_chakra(write(tmp_path / "t.et", *layers())), read_chakra(path)
    assert names(read) == names(told) and read.deps.tolist() == told.deps.tolist()
    assert np.array_equal(read.size_bytes, told.size_bytes) and np.array_equal(read.flops, told.flops)


def test_the_feeders_own_json_is_read(tmp_path: Path) -> None:
    graph = [
        {"Id": 0, "Name": "a", "NodeType": 4, "is_cpu_op": False, "runtime": 5, "data_deps": []},
        {"Id": 1, "Name": "b", "NodeType": 7, "data_deps": [0], "comm_type": 6, "comm_size": 65536},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"workload_graph": graph}))
    workload = read_chakra(path)
    assert names(workload) == ["a", "all_to_all: b"]
    assert workload.size_bytes[1] == 65536 and workload.duration_s[0] == 5e-6
    assert workload.dependencies(1).tolist() == [0]


def test_order_is_that_of_dependencies_not_of_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.et", NEWEST.metadata(),
        NEWEST.node(1, "last", "COMP_NODE", data_deps=[9], duration_micros=1),
        NEWEST.node(9, "first", "COMP_NODE", duration_micros=1),
    )  # fmt: skip
    workload = read_chakra(path)
    assert names(workload) == ["first", "last"]
    assert replay(workload).makespan_s == pytest.approx(2e-6)


def test_memory_operations_have_their_size_and_storage_is_passed_over(tmp_path: Path) -> None:
    size = NEWEST.attribute("tensor_size", "uint64", 1024)
    path = write(
        tmp_path / "t.et", NEWEST.metadata(version="1.0"), NEWEST.node(0, "load", "MEM_LOAD_NODE", size),
        NEWEST.node(1, "read", "STORAGE_NODE", data_deps=[0]),
        NEWEST.node(2, "use", "COMP_NODE", data_deps=[1], duration_micros=3),
    )  # fmt: skip
    workload = read_chakra(path)
    assert workload.kind.tolist() == [Op.MEMORY, Op.COMPUTE] and workload.size_bytes[0] == 1024
    assert workload.dependencies(1).tolist() == [0]


def test_what_was_converted_from_pytorch(tmp_path: Path) -> None:
    """Host calls and kernels in one graph, groups by name, sizes of what each rank puts in."""
    told = json.dumps([
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 8},
        {"pg_name": "7", "pg_desc": "tp", "backend_config": "cuda:nccl", "ranks": [0, 1], "group_size": 2},
    ])  # fmt: skip
    info = NEWEST.messages["ChakraProtoMsg.IOInfo"]
    host, device = (NEWEST.attribute("is_cpu_op", "bool", flag) for flag in (True, False))
    group = NEWEST.attribute("pg_name", "string", "7")
    at = NEWEST.attribute("stream", "int64", 20)
    path = write(
        tmp_path / "t.et", NEWEST.metadata(),
        NEWEST.node(2, "## process_group:init ##", "METADATA_NODE", inputs=info(values=str([told]))),
        NEWEST.node(3, "aten::mm", "COMP_NODE", host, ctrl_deps=[2], duration_micros=30),
        NEWEST.node(4, "gemm", "COMP_NODE", device, ctrl_deps=[3], data_deps=[3], duration_micros=500),
        NEWEST.node(5, "aten::add", "COMP_NODE", host, ctrl_deps=[2], data_deps=[3], duration_micros=30),
        NEWEST.collective(6, "ncclDevKernel_AllGather_RING_LL", "ALL_GATHER", 4096, device, group, at, data_deps=[4],
                          duration_micros=80),
        NEWEST.collective(7, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ALL_REDUCE", 4096, device, at, data_deps=[6],
                          duration_micros=80),
    )  # fmt: skip
    workload = read_chakra(path)
    gather, reduce = np.flatnonzero(workload.kind == Op.COLLECTIVE)
    assert (workload.size_bytes[gather], workload.ranks[gather]) == (2 * 4096, 2)  # the whole of two parts
    assert workload.size_bytes[reduce] == 4096
    # The host runs ahead of the device: aten::add ends long before the product.
    assert replay(workload).makespan_s == pytest.approx((30 + 500 + 80 + 80) * 1e-6)


def test_groups_of_astra_sims_file(tmp_path: Path) -> None:
    group = NEWEST.attribute("pg_name", "string", "3")
    for rank in range(4):
        write(tmp_path / f"job.{rank}.et", NEWEST.metadata(), NEWEST.collective(0, "x", "ALL_GATHER", 100, group))
    (tmp_path / "comm_group.json").write_text('{"3": [0, 1, 2, 3, 4, 5]}')
    for name in (tmp_path, tmp_path / "job"):  # a folder; the prefix that ASTRA-sim takes
        workload = read_trace(name)
        assert workload.num_ranks == 4 and set(workload.ranks) == {6} and set(workload.size_bytes) == {600}
    (tmp_path / "comm_group.json").write_text('{"3": 5}')
    with pytest.raises(DescriptionError, match="a file of groups is"):
        read_trace(tmp_path)


def test_ranks_meet_in_a_collective(tmp_path: Path) -> None:
    for rank, micros in ((0, 100), (1, 900)):
        write(
            tmp_path / f"t.{rank}.et", NEWEST.metadata(),
            NEWEST.node(0, "compute", "COMP_NODE", duration_micros=micros),
            NEWEST.collective(1, "sum", "ALL_REDUCE", 1 << 20, data_deps=[0]),
        )  # fmt: skip
    workload = read_trace(tmp_path)
    timeline = replay(workload, load("h100-64-rail"))
    sums = np.flatnonzero(workload.kind == Op.COLLECTIVE)
    assert np.allclose(timeline.spans.start_s[sums], 900e-6)  # the early rank waits for the late one


#: Rank 0 of ASTRA-sim's examples/custom_collective/sample/allreduce_ring_8ranks, a ring as sends and receives, from its
#: first operation on, as a public index stores it: Mac Roman, without control characters, and without the letter behind
#: an escape. Numbers up to 31 are such characters: what is left to compare are lengths, tags of fields, names, order.
STORED = Path(__file__).parents[1] / "fixtures" / "astra-sim-ring.0.et.txt"
CHUNK = 131072


def ring(rank: int, num_ranks: int = 8) -> list[Any]:
    """The same schedule for any rank: a step sends or receives; the first receives are added to what is there."""
    found: list[Any] = []

    def add(name: str, type: str, *attributes: Any, **fields: Any) -> None:
        number = len(found)
        found.append(NEWEST.node(number, name, type, *attributes, data_deps=[number - 1][:number], **fields))

    for step in range(4 * (num_ranks - 1)):
        sends = step % 2 == 0
        peer = (rank + 1) % num_ranks if sends else (rank - 1) % num_ranks
        word = "SEND" if sends else "RECV"
        add(
            f"COMM_{word}_NODE_tb0_step{step}", f"COMM_{word}_NODE", NEWEST.attribute("comm_type", "int64", 0),
            NEWEST.attribute("comm_size", "int64", CHUNK),
            NEWEST.attribute("comm_dst" if sends else "comm_src", "int32", peer),
            NEWEST.attribute("comm_tag", "int32", 0),
        )  # fmt: skip
        if not sends and step < 2 * (num_ranks - 1):
            add(f"COMP_NODE_tb0_step{step}", "COMP_NODE", duration_micros=5)
    return found


def test_what_astra_sim_wrote_is_what_the_schema_gives() -> None:
    text = stream(*ring(0)).decode("mac_roman")
    shown = re.sub(r"[\x00-\x08\x0b-\x1f]", "", re.sub("\x1b[@-Z]", "", text))
    assert shown == STORED.read_text(encoding="utf-8")


def test_a_ring_of_sends_takes_as_long_as_its_rounds(tmp_path: Path) -> None:
    for rank in range(8):
        write(tmp_path / f"ring.{rank}.et", NEWEST.metadata(), *ring(rank))
    workload = read_trace(tmp_path / "ring")
    assert workload.num_ranks == 8 and (workload.kind == Op.SEND).sum() == 8 * 14
    assert workload.total_bytes() == 14 * CHUNK
    machine = machine_from_fabric(load("h100-64-rail"))
    each = priced(workload, machine, default_constants())[np.flatnonzero(workload.kind == Op.SEND)[0]]
    assert each > CHUNK / machine.nvlink_Bps
    assert replay(workload, machine).makespan_s == pytest.approx(14 * each + 7 * 5e-6)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_clear_error_or_operations(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.et"
    path.write_bytes(content)
    try:
        list(read_ops(path))
    except SynclineError as error:
        assert error.message


@given(st.binary(max_size=120))
def test_any_operation_ends_in_one_clear_error_or_a_workload(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.et"
    path.write_bytes(b"\x00" + wire_size(content) + content)
    try:
        assert len(read_chakra(path)) <= 1
    except SynclineError as error:
        assert error.message


def wire_size(content: bytes) -> bytes:
    return bytes([len(content) & 0x7F])


@pytest.mark.parametrize(("content", "words"), [
    ('{"nodes": [{"id": "x", "name": "a"}]}', "cannot be read"),
    ('[{"name": "a", "type": "COMM_COLL_NODE", "attr": [{"name": "comm_size", "stringVal": "big"}]}]', "not a number"),
    ('{"nodes": 5}', "not a JSON trace"),
    ('[{"id": 1, "name": "a", "type": "COMP_NODE", "dataDeps": [2]}, '
     '{"id": 2, "name": "b", "type": "COMP_NODE", "dataDeps": [1]}]', None),
])  # fmt: skip
def test_broken_json_says_what_is_wrong(tmp_path: Path, content: str, words: str | None) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(SynclineError, match=words or "waits for itself"):
        replay(read_chakra(path))


def test_a_truncated_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.et"
    path.write_bytes(stream(*layers())[:-3])
    with pytest.raises(SynclineError, match=r"the trace is broken before byte [\d,]+ of [\d,]+"):
        list(read_ops(path))
    path.write_bytes(b"")
    with pytest.raises(SynclineError, match="empty"):
        list(read_ops(path))
    with pytest.raises(SynclineError, match="cannot read"):
        list(read_ops(tmp_path / "none.et"))
    with pytest.raises(SynclineError, match="has no traces"):
        (tmp_path / "empty").mkdir()
        read_trace(tmp_path / "empty")
