"""PyTorch's execution traces and CPU profiler traces, written by torch 2.13 on two real gloo ranks: one DDP step of a
model of two layers (10,384 parameters), then an all-gather and a broadcast of 100 floats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.errors import DescriptionError
from syncline.fabric import load
from syncline.sim.step.replay import replay
from syncline.timeline.recording import kineto
from syncline.workload.graph import Op, Workload
from syncline.workload.trace import read_trace
from syncline.workload.traces.execution_trace import read_execution, word_of
from syncline.workload.traces.recorded import recorded_workload

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXECUTION = [FIXTURES / f"execution-gloo-ddp.{rank}.json.gz" for rank in (0, 1)]
PROFILER = [FIXTURES / f"profiler-gloo-ddp.{rank}.json.gz" for rank in (0, 1)]
#: Name, bytes and ranks of what each rank exchanged.
EXCHANGED = [("all_reduce", 10_384 * 4, 2), ("all_gather", 2 * 100 * 4, 2), ("broadcast", 100 * 4, 2)]


def read_kineto(*paths: Path) -> Workload:
    return recorded_workload([kineto.read_kineto(path) for path in paths])


def collectives(workload: Workload, rank: int) -> list[tuple[str, float, int]]:
    chosen = np.nonzero((workload.kind == Op.COLLECTIVE) & (workload.rank == rank))[0]
    names = [workload.names[workload.label[i]].split(":")[0] for i in chosen]
    return list(zip(names, workload.size_bytes[chosen].tolist(), workload.ranks[chosen].tolist(), strict=True))


@pytest.mark.parametrize("workload", [read_execution(EXECUTION), read_kineto(*PROFILER)])
def test_both_tools_tell_the_same_collectives(workload: Workload) -> None:
    assert workload.num_ranks == 2
    assert collectives(workload, 0) == collectives(workload, 1) == EXCHANGED


def test_products_have_their_arithmetic() -> None:
    workload = read_execution(EXECUTION[0])
    # Forward 8 x 64 x 128 and 8 x 128 x 16; backward: both weight gradients, and one input gradient.
    forward = 2 * 8 * (64 * 128 + 128 * 16)
    assert workload.flops.sum() == forward + 2 * 8 * (64 * 128 + 2 * 128 * 16)
    assert np.isnan(workload.duration_s).all(), "such a trace has no times"


def test_gradients_are_reduced_after_the_last_product_and_before_the_update() -> None:
    workload = read_execution(EXECUTION[0])
    reduce = int(np.nonzero(workload.kind == Op.COLLECTIVE)[0][0])
    assert max(np.nonzero(workload.flops)[0]) < reduce
    assert workload.dependencies(reduce).tolist() == [reduce - 1], "launched behind what was computed"
    assert any(reduce in workload.dependencies(i) for i in range(reduce + 1, len(workload)))


def test_on_the_cpu_a_collective_follows_its_launch_and_the_update_waits() -> None:
    workload = read_kineto(PROFILER[0])
    reduce = int(np.nonzero(workload.kind == Op.COLLECTIVE)[0][0])
    (launch,) = workload.dependencies(reduce)
    assert "reducer::mul_out" in workload.names[workload.label[launch]], "what DDP's hook did before it asked"
    assert workload.dependencies(reduce + 1).tolist() == [reduce]
    assert workload.duration_s[reduce] == pytest.approx(1.500711e-3)


@pytest.mark.parametrize("path", [EXECUTION[0], PROFILER[0]])
def test_a_trace_is_recognised_and_priced_on_other_networks(path: Path) -> None:
    workload = read_trace(path)
    assert collectives(workload, 0) == EXCHANGED
    slow, fast = replay(workload, load("old-10gbe")), replay(workload, load("h100-64-rail"))
    assert slow.makespan_s > fast.makespan_s > 0


def test_a_trace_without_times_is_refused_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    from syncline.cli.shell import app

    assert app.run(["step", "h100-64-rail", str(EXECUTION[0])]) == 2
    assert f"syncline explain {EXECUTION[0]}" in capsys.readouterr().err
    assert app.run(["explain", str(EXECUTION[0])]) == 2
    assert "the trace has no durations" in capsys.readouterr().err


def call(number: int, name: str, parent: int, **attributes: Any) -> dict[str, Any]:
    tensor = [1, 7, 0, 1000, 2, "cuda:0"]
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": {"values": [tensor], "shapes": [[1000]]},
        "outputs": {"values": [], "shapes": []},
        "attrs": [{"name": key, "type": "", "value": value} for key, value in attributes.items()],
    }  # fmt: skip


def test_what_nccl_records_goes_first(tmp_path: Path) -> None:
    """NCCL's record has name, sizes, type and group; the call around it and waits do not count again."""
    said = {"collective_name": "_reduce_scatter_base", "dtype": "BFloat16", "in_msg_nelems": 8000,
            "out_msg_nelems": 1000, "pg_name": "tp", "pg_size": 8}  # fmt: skip
    calls = [
        call(2, "c10d::_reduce_scatter_base_", 1), call(3, "record_param_comms", 2, **said),
        call(4, "record_param_comms", 1, collective_name="wait", pg_size=8), call(5, "aten::add_", 1),
    ]  # fmt: skip
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": calls}))
    workload = read_trace(path)
    assert workload.names == ("reduce_scatter: record_param_comms in tp", "aten::add_")
    assert (workload.size_bytes[0], workload.ranks[0]) == (16_000, 8)
    assert workload.dependencies(1).tolist() == [0], "the update reads what was scattered"


@pytest.mark.parametrize("damage", ['{"nodes": 3}', '{"nodes": [{"id": "x"}]}', '{"nodes": [{"id": 1}]}', "[1]", "{"])
def test_a_damaged_trace_is_one_clear_error(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text(damage)
    with pytest.raises(DescriptionError, match="not an execution trace") as caught:
        read_execution(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [("c10d::_allgather_base_", "all_gather"), ("c10d::reduce_scatter_", "reduce_scatter"),
     ("all_to_allv", "all_to_all"),
     ("c10d::reduce_", "reduce"), ("c10d::send", "send"), ("wait", ""), ("init", "")],
)  # fmt: skip
def test_names_of_collectives(name: str, word: str) -> None:
    assert word_of(name) == word
