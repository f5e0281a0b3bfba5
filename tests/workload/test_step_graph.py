"""The graph of a step: its bytes are the volumes, its operations the model's, and it can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import DescriptionError
from syncline.workload.graph import GraphBuilder, Op, load_workload, save_workload
from syncline.workload.read_job import load_job
from syncline.workload.step_graph import step_graph
from syncline.workload.trace import read_trace
from syncline.workload.volumes import volumes


def job(**parallel: Any):
    model = parallel.pop("model", "llama3-8b")
    recompute = parallel.pop("recompute", "none")
    batch = {"global": 48, "micro": 1, "sequence": 4096}
    return load_job({"model": model, "parallel": parallel, "batch": batch, "recompute": recompute})


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 4]),
    zero=st.sampled_from(["none", "1", "fsdp"]),
    schedule=st.sampled_from(["1f1b", "interleaved", "gpipe", "zero-bubble"]),
    recompute=st.sampled_from(["none", "full"]),
)
def test_bytes_of_the_graph_are_the_volumes(
    tp: int, pp: int, cp: int, dp: int, zero: str, schedule: str, recompute: str
) -> None:
    virtual = 2 if schedule == "interleaved" and pp > 1 else 1
    described = job(tp=tp, pp=pp, cp=cp, dp=dp, zero=zero, schedule=schedule, virtual=virtual, recompute=recompute)
    graph = step_graph(described)
    sent: dict[str, float] = {}
    for volume in volumes(described):
        sent[volume.axis] = sent.get(volume.axis, 0.0) + volume.size_bytes
    for axis, size in sent.items():
        assert graph.total_bytes(axis) == pytest.approx(size, rel=1e-9), axis
    assert graph.total_bytes() == pytest.approx(sum(sent.values()), rel=0.35)  # no stage sends the most of every kind
    assert len(graph.order()) == len(graph)


def test_bytes_of_experts_are_counted() -> None:
    described = job(model="mixtral-8x7b", dp=8, ep=8, pp=1)
    kinds = {volume.kind: volume for volume in volumes(described)}
    assert kinds["expert"].size_bytes == pytest.approx(7 / 8 * 2 * 4096 * 4096 * 2 * 4 * 32 * 6)
    assert step_graph(described).total_bytes("ep") == pytest.approx(kinds["expert"].size_bytes)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_operations_are_those_of_the_model(recompute: str) -> None:
    described = job(tp=2, pp=4, dp=2, recompute=recompute)
    tokens = described.batch.global_ * 4096
    ranks = 2 * 2  # the graph has one rank of each stage
    model: Any = described.model
    expected = model.flops_per_token(4096) * tokens * (4 / 3 if recompute == "full" else 1)
    assert step_graph(described).flops.sum() * ranks == pytest.approx(expected)


def test_a_workload_is_saved_and_read_back(tmp_path: Path) -> None:
    graph = step_graph(job(tp=2, pp=2, dp=2))
    save_workload(graph, tmp_path / "step.json")
    again = load_workload(tmp_path / "step.json")
    assert again.names == graph.names
    assert read_trace(tmp_path / "step.json").names == graph.names  # `syncline step` takes the file too
    assert np.array_equal(again.deps, graph.deps) and np.array_equal(again.size_bytes, graph.size_bytes)
    (tmp_path / "bad.json").write_text(
        '{"syncline": "workload 1", "name": "x", "names": [], "metadata": {}, "columns": {}}'
    )
    with pytest.raises(DescriptionError, match="is not a workload"):
        load_workload(tmp_path / "bad.json")


def test_a_cycle_is_refused() -> None:
    builder = GraphBuilder("loop")
    first = builder.add(0, Op.COMPUTE, "a", stream=0)
    second = builder.add(0, Op.COMPUTE, "b", stream=1, deps=(first,))
    builder.wait(first, second)
    with pytest.raises(DescriptionError, match=r"waits for itself"):
        builder.build().order()
