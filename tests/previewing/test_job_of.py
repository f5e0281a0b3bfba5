"""A captured script goes on: as a job file with its model's shape, and as Chakra traces."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncline.fabric import load
from syncline.previewing.axes import axes_of, gradient_groups
from syncline.previewing.export import save_chakra
from syncline.previewing.graph import step_graph
from syncline.previewing.job_of import job_of, reaching
from syncline.previewing.price import Pricer
from syncline.previewing.record import Capture, CapturedOp, KernelCall, read_capture
from syncline.sim.step.arithmetic.layers_cost import layers_cost
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.graph import Op
from syncline.workload.layer_list import LayerList
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.traces.chakra import read_chakra
from syncline.workload.volumes import volumes

KEPT = Path(__file__).parents[2] / "examples" / "preview" / "captured"
HIDDEN, HEADS, KEYS, FFN, VOCAB, LAYERS, LENGTH = 512, 8, 2, 1536, 32_000, 3, 128
SIZE = HIDDEN // HEADS


def _sizes(tp: int = 1) -> dict[str, list[int]]:
    found = {"embed.weight": [VOCAB // tp, HIDDEN], "norm.weight": [HIDDEN], "head.weight": [VOCAB // tp, HIDDEN]}
    for layer in range(LAYERS):
        own = {
            "a.weight": [HIDDEN], "b.weight": [HIDDEN], "q.weight": [HEADS * SIZE // tp, HIDDEN],
            "k.weight": [KEYS * SIZE // tp, HIDDEN], "v.weight": [KEYS * SIZE // tp, HIDDEN],
            "o.weight": [HIDDEN, HEADS * SIZE // tp], "up.weight": [FFN // tp, HIDDEN],
            "gate.weight": [FFN // tp, HIDDEN], "down.weight": [HIDDEN, FFN // tp],
        }  # fmt: skip
        found |= {f"layers.{layer}.{name}": size for name, size in own.items()}
    return found


def _captured(world: int, moves: list[tuple[str, str, tuple[int, ...], float]], tp: int = 1) -> Capture:
    """Return a step with attention in each layer and these collectives: name, phase, ranks, bytes."""
    query, key = ((2, n // tp, LENGTH, SIZE) for n in (HEADS, KEYS))
    ins: Any = tuple((shape, "bfloat16", 1) for shape in (query, key, key))
    kernel = KernelCall("aten._scaled_dot_product_flash_attention.default", 1, ins, ins[:1],
                        [None, None, None, 0.0, True], {}, False, False, False, "aten")  # fmt: skip
    groups = tuple(dict.fromkeys(ranks for _, _, ranks, _ in moves))
    ops = [CapturedOp("kernel", 0, 0, 0, 0, "forward", [], [0, [], []]) for _ in range(LAYERS)]
    ops += [CapturedOp("collective", 1, -1, 0, 0, phase, [], [w, groups.index(r), s, -1]) for w, phase, r, s in moves]
    sizes = _sizes(tp)
    total = sum(int(a[0] * (a[1] if len(a) > 1 else 1)) for a in sizes.values())
    model = {"class": "Tiny", "parameters": total, "shapes": sizes}
    return Capture(0, world, tuple(ops), (kernel,), ("",), {0: "default"}, groups, (), (), facts={"model": model})


def _shape(capture: Capture) -> Shape:
    job = load_job(job_of((capture,)).data)
    assert isinstance(job.model, Shape)
    assert (job.batch.global_, job.batch.micro, job.batch.sequence) == (2 * job.parallel.dp, 2, LENGTH)  # type: ignore[operator]
    return job.model


PARAMS = sum(int(a[0] * (a[1] if len(a) > 1 else 1)) for a in _sizes().values())
WORLD = tuple(range(16))


def test_fsdp_is_known_by_its_gathers_and_the_shape_by_its_parameters() -> None:
    moves = [("all_gather", "forward", WORLD, 2.0 * PARAMS), ("all_gather", "backward", WORLD, 1.6 * PARAMS),
             ("reduce_scatter", "backward", WORLD, 4.0 * PARAMS)]  # fmt: skip
    capture = _captured(16, moves)
    axes = axes_of((capture,))
    assert (axes.zero, axes.shard, axes.tp, axes.gradient_bytes, axes.parameter_bytes) == ("fsdp", 16, 1, 4, 2)
    shape = _shape(capture)
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn) == (LAYERS, HIDDEN, HEADS, KEYS, FFN)
    assert shape.gated and not shape.tied and shape.causal and shape.params == PARAMS


def test_tensor_parallelism_of_parameters_that_are_counted_as_they_lie() -> None:
    inner, outer = tuple(range(2)), tuple(range(0, 16, 2))
    local = sum(int(a[0] * (a[1] if len(a) > 1 else 1)) for a in _sizes(2).values())
    moves = [
        ("all_reduce", "forward", inner, 9e6),
        ("all_reduce", "backward", inner, 9e6),
        ("all_reduce", "backward", outer, 4.0 * local),
    ]
    capture = _captured(16, moves, tp=2)
    axes = axes_of((capture,))
    assert (axes.tp, axes.dp, axes.zero) == (2, 8, "none")
    assert [capture.groups[group] for group in gradient_groups(capture)] == [outer]  # a codec leaves activations alone
    shape = _shape(capture)
    assert (shape.heads, shape.kv_heads, shape.ffn, shape.vocab) == (HEADS, KEYS, FFN, VOCAB)
    assert shape.params == pytest.approx(PARAMS, rel=0.01)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_stage_of_zero_that_deepspeed_states_is_the_jobs(stage: int) -> None:
    """Its first two sum gradients whole, as no ZeRO at all does."""
    params = sum(math.prod(size) for size in _sizes().values())
    captured = _captured(16, [("all_reduce", "forward", tuple(range(16)), 2.0 * params)])
    assert job_of((captured,)).data["parallel"] == {"dp": 16, "zero": "none"}
    stated = replace(captured, facts={**captured.facts, "zero_stage": stage})
    job = job_of((stated,))
    assert job.data["parallel"] == {"dp": 16, "zero": str(stage)}
    assert load_job(job.data).parallel.sharded_params == (stage == 3)


def test_what_is_no_transformer_is_a_list_of_layers_with_the_same_bytes() -> None:
    capture = read_capture(KEPT / "rank0.json")
    job = load_job(job_of((capture,)).data)
    assert isinstance(job.model, LayerList)
    params = (1024 * 4096 + 4096) + (4096 * 1024 + 1024) + 2 * 1024 + (1024 * 10 + 10)
    assert job.model.params == params
    (moved,) = volumes(job)
    ranks = capture.world
    assert moved.size_bytes == pytest.approx(2 * (ranks - 1) / ranks * 4 * params)
    forward = 2 * (2 * 1024 * 4096 + 1024 * 10)
    first = 2 * 1024 * 4096  # what it reads is data, which needs no gradient
    assert job.model.flops_per_sample == pytest.approx(3 * forward - first)


def test_a_sharded_list_of_layers_is_gathered_twice_and_says_what_its_kernels_reach() -> None:
    kept = read_capture(KEPT / "rank0.json")
    params = float(kept.facts["model"]["parameters"])
    everyone = tuple(range(kept.world))
    moves = (("all_gather", "forward", 2.0), ("all_gather", "backward", 2.0), ("reduce_scatter", "backward", 4.0))
    end = kept.steady[-1][1]
    more = [CapturedOp("collective", 1, -1, 0, 0, phase, [], [w, 0, b * params, -1]) for w, phase, b in moves]
    plain = [op for op in kept.ops[:end] if op.kind != "collective"]
    capture = replace(kept, ops=(*plain, *more), groups=(everyone,), boundaries=())
    told = job_of((capture,))
    job, n = load_job(told.data), kept.world
    assert (told.data["parallel"], isinstance(job.model, LayerList)) == ({"dp": n, "zero": "fsdp"}, True)
    (moved,) = volumes(job)
    assert moved.size_bytes == pytest.approx((n - 1) / n * params * (2 * 2 + 4))
    machine, whole_s = machine_from_fabric(load("h100-64-rail")), 0.02
    found = load_job(reaching(told, (capture,), machine, whole_s).data)
    priced = layers_cost(found, machine, default_constants(), 4.0)
    assert priced.compute == pytest.approx(whole_s, rel=0.01)


def test_a_compiled_helper_does_not_make_the_model_compiled() -> None:
    capture = read_capture(KEPT / "rank0.json")
    forward = [k for k, op in enumerate(capture.ops) if (op.kind, op.phase) == ("kernel", "forward")]

    def compiled(marked: set[int]) -> object:
        ops: list[Any] = [
            op._replace(extra=[1, *op.extra[1:]]) if k in marked and isinstance(op.extra, list) else op
            for k, op in enumerate(capture.ops)
        ]
        return job_of((replace(capture, ops=tuple(ops)),)).data["compiled"]

    assert (compiled(set()), compiled({forward[-1]}), compiled({*forward})) == (False, False, True)


def test_chakra_round_trip(tmp_path: Path) -> None:
    capture = read_capture(KEPT / "rank0.json")
    graph = step_graph((capture,), Pricer(machine_from_fabric(load("h100-64-rail"))))
    (path,) = save_chakra(graph, tmp_path / "et")
    back = read_chakra(path)
    last = graph.step == graph.num_steps - 1
    mine = last & (graph.source >= 0)
    for kind in (Op.COMPUTE, Op.COLLECTIVE):
        assert (back.kind == kind).sum() == (mine & (graph.workload.kind == kind)).sum()
    sent = back.kind == Op.COLLECTIVE
    assert back.size_bytes[sent].sum() == graph.workload.size_bytes[mine].sum()
    assert set(back.ranks[sent].tolist()) == {capture.world}
    spent = graph.workload.duration_s[mine & (graph.workload.kind == Op.COMPUTE)].sum()
    assert back.duration_s[back.kind == Op.COMPUTE].sum() == pytest.approx(spent, rel=0.02)
