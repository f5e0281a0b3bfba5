"""Memory in columns against a plain twin: one configuration at a time, written with ifs from docs/method/memory.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.sim.step.test_cost_twin import layers_twin

from syncline.fabric import load
from syncline.sim.step.arithmetic.params import layer_params, predict_params
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack
from syncline.sim.step.experts import expert_params
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.memory import kept_per_token, memory, stages, working_per_token
from syncline.workload.read_job import load_job
from syncline.workload.stages import stage_layers

H100 = machine_from_fabric(load("h100-64-rail"))
GIB = 2**30
TORCH = {"framework": "pytorch"}


def case(model: str = "llama3-70b", sequence: int = 4096, batch: int = 64, **fields: Any) -> Case:
    return build_case(load_job({"model": model, "batch": {"global": batch, "sequence": sequence}, **fields}), H100)


def with_columns(name: str, **changes: float) -> Case:
    return replace(CASES[name](), **{column: np.array(value) for column, value in changes.items()})


CASES = {
    "one rank's model, replicas": lambda: case("llama3-8b", parallel={"dp": 8, "zero": "none"}),
    "nothing to synchronise": lambda: case("llama3-8b", parallel={"tp": 8, "dp": 1}),
    "gradients sharded": lambda: case("llama3-8b", parallel={"dp": 8, "zero": "2"}),
    "parameters stay gathered": lambda: case(
        "llama3-8b", parallel={"dp": 64, "zero": "fsdp"}, overlap={"reshard": False}
    ),
    "PyTorch, parameters stay gathered": lambda: case(
        "llama3-70b", software=TORCH, parallel={"dp": 64, "zero": "fsdp"}, overlap={"reshard": False}, recompute="full"
    ),
    "parameters sharded": lambda: case("llama3-8b", parallel={"dp": 64, "zero": "fsdp"}),
    "context parallel": lambda: case("llama3-8b", parallel={"tp": 2, "cp": 4, "dp": 1}),
    "pipeline of two": lambda: case(parallel={"tp": 8, "pp": 2, "dp": 1, "zero": "1"}),
    "pipeline of four": lambda: case(parallel={"tp": 8, "pp": 4, "dp": 2, "zero": "1", "sp": True}),
    "pipeline of three, uneven": lambda: case("llama3-8b", parallel={"pp": 3, "dp": 8}, batch=48),
    "few micro-batches": lambda: case(parallel={"tp": 8, "pp": 8, "dp": 2}, batch=8),
    "interleaved": lambda: case(parallel={"tp": 8, "pp": 4, "virtual": 5, "dp": 2}),
    "gpipe": lambda: case(parallel={"tp": 8, "pp": 4, "dp": 2, "schedule": "gpipe"}),
    "head counted as a layer": lambda: case("llama3-405b", parallel={"tp": 8, "pp": 16, "dp": 1, "virtual": 8}),
    "sharded in a pipeline": lambda: case(parallel={"tp": 4, "pp": 4, "dp": 4, "zero": "fsdp"}),
    "experts": lambda: case("mixtral-8x7b", parallel={"tp": 2, "ep": 4, "dp": 4, "zero": "1"}),
    "experts that all hold": lambda: case("mixtral-8x7b", parallel={"tp": 1, "ep": 8, "dp": 8, "zero": "fsdp"}),
    "a further token predicted": lambda: case("deepseek-v3", parallel={"pp": 16, "ep": 8, "dp": 8}),
    "a further token predicted, one stage": lambda: case("deepseek-v3", parallel={"ep": 64, "dp": 64}),
    "PyTorch's DDP": lambda: case("llama3-8b", software=TORCH, parallel={"dp": 8, "zero": "none"}, batch=16),
    "PyTorch's DDP, one micro-batch": lambda: case(
        "llama3-8b", software=TORCH, parallel={"dp": 8, "zero": "none"}, batch=8, sequence=512
    ),
    "PyTorch alone": lambda: case("llama3-8b", software=TORCH, parallel={"tp": 8, "dp": 1}, batch=8),
    "PyTorch's FSDP, long": lambda: case(
        "llama3-8b", software=TORCH, parallel={"dp": 64, "zero": "fsdp"}, sequence=32768
    ),
    "two further tokens": lambda: with_columns("a further token predicted, one stage", predict_layers=2.0),
    "masks of dropout": lambda: with_columns("pipeline of four", dropout=1.0),
    "one matrix for both ends": lambda: with_columns("pipeline of two", head_params=0.0),
    "PyTorch, few words": lambda: with_columns("PyTorch's FSDP, long", vocab=1000.0),
    "PyTorch, recomputed": lambda: case(
        "llama3-8b", software=TORCH, parallel={"dp": 64, "zero": "fsdp"}, recompute="full", sequence=8192
    ),
    "PyTorch, recomputed, few words": lambda: with_columns("PyTorch, recomputed", vocab=1000.0),
    "PyTorch, one matrix for both ends": lambda: with_columns("PyTorch, few words", head_params=0.0),
    "PyTorch alone, few words": lambda: with_columns("PyTorch alone", vocab=1000.0),
    "activations on the host": lambda: case("llama3-8b", parallel={"dp": 8}, offload="activations"),
    "state on the host": lambda: case("llama3-8b", parallel={"dp": 8}, offload="optimizer"),
}


def routed_layers(c: Any, number: int, layers: float) -> float:
    """Return how many of a stage's layers have experts: those without come first, unless every second is one."""
    plain = float(c.ffn_share * c.layers - c.moe_layers)
    if c.pp == 1:
        return float(c.moe_layers)
    if c.ffn_share < 1 or 2 * plain >= c.layers:
        return layers * float(c.moe_layers / c.layers)
    return max(layers - plain, 0.0) if number == 0 else layers


def stage_twin(c: Any, number: int) -> tuple[float, float, float, float, float]:
    """Return layers, end parameters, layers in flight, embeddings in flight and 1 for the head of stage `number`."""
    pp, m, v = int(c.pp), float(c.num_micro), float(c.virtual)
    embedding, head = float(c.embedding_params / c.tp), float(c.head_params / c.tp)
    if pp == 1:
        return float(c.layers), embedding + head, float(c.layers), 1.0, 1.0
    if c.even_head:
        layers = (c.layers + 2) / pp - (number in (0, pp - 1))
    else:
        whole, each = int(c.layers), int(c.layers) // pp
        layers = each if whole % pp == 0 else layers_twin(whole, pp, float(c.head_layers))[number]
    lead = float(c.even_head) if number == 0 else 0.0
    if v > 1:
        slots = layers + lead
        chunks = min(m, max(2 * (pp - number) - 1, 1))
        in_flight = min(m, pp) * (v - 1) / v * slots + chunks * max(slots / v - lead, 0.0)
    else:
        in_flight = (m if c.gpipe else min(m, max(pp - number, 1))) * layers
    begun = m if c.gpipe else min(m, 2 * pp - 1 if v > 1 else pp)
    ends = {0: embedding, pp - 1: head or embedding}.get(number, 0.0)
    return float(layers), ends, float(in_flight), begun if number == 0 else 0.0, float(number == pp - 1)


def twin(c: Any) -> dict[str, float]:
    """Return the memory of the fullest of the first, second and last stage."""
    pp = int(c.pp)
    numbers = [0] if pp == 1 else [0, *([1] if pp > 2 else []), pp - 1]
    found = [(number, stage_twin(c, number)) for number in numbers]
    parts = max(
        (held_twin(c, stage, routed_layers(c, number, stage[0])) for number, stage in found),
        key=lambda held: sum(held.values()),
    )
    replicas = c.dp * c.cp
    groups = 1 + sum(bool(x > 1) for x in (c.tp, c.pp, replicas, c.cp, c.ep))
    layer = float(layer_params(c) + expert_params(c) * c.moe_layers / c.layers)
    buckets = float(c.main_grad_bytes) * min(layer, 40e6) if replicas > 1 and not c.shard_params else 0.0
    parts["buffers"] = 0.7 * GIB + 0.3 * GIB * groups + buckets
    parts["fragmentation"] = float(c.fragmentation) * (parts["activations"] + parts["logits"])
    return {**parts, "total": sum(parts.values())}


def held_twin(c: Any, stage: tuple[float, float, float, float, float], expert_layers: float) -> dict[str, float]:
    layers, ends, in_flight, embedded, head = stage
    per_layer, routed = float(layer_params(c)), float(expert_params(c) * c.moe_layers / c.layers)
    further = head * float(c.predict_layers)
    dense = layers * per_layer + ends + further * float(predict_params(c))
    experts = (expert_layers + further) * float(expert_params(c))
    holders = max(float(c.dp * c.cp * c.tp / c.ep), 1.0)
    whole, sharded = dense + experts, dense / float(c.shard_ranks) + experts / holders
    layer = per_layer + (routed if holders > 1 else 0.0)
    if c.shard_params:
        whole_layers = dense + (experts if holders > 1 else 0.0)
        fetched = whole if c.pp > 1 else 2 * layer + ends if c.reshard else whole_layers
        parameters, reduced = sharded + fetched, dense if c.pp > 1 else layer
    else:
        parameters, reduced = whole, layer if c.shard_grads else 0.0
    optimizer = float(c.optimizer_bytes) * (sharded if c.sharded_state else whole)
    if c.shard_params:
        optimizer -= float(c.weight_bytes) * sharded
    kept, remade = (float(x) for x in kept_per_token(c))
    stored = (in_flight + further) * kept
    if c.offload_kept:
        stored = min(stored, 2 * kept + (1 - float(c.offload_kept)) * stored)
    across = float(c.tp) if c.sequence_parallel else 1.0
    embeddings = embedded * (2 + float(c.dropout)) * float(c.hidden) / across
    logits = head * (1 + float(c.predict_layers)) * float(c.logit_bytes) * float(c.tokens * c.vocab / c.tp)
    working = float(c.tokens * working_per_token(c))
    gradients, passing = float(c.main_grad_bytes) * (sharded if c.shard_grads else whole), float(c.grad_bytes) * reduced
    found = {
        "parameters": float(c.weight_bytes) * parameters,
        "gradients": gradients + passing,
        "optimizer": 0.0 if c.offload_state else optimizer,
        "activations": float(c.tokens) * (stored + remade + embeddings) + max(working - logits, 0.0),
        "logits": logits,
    }
    if c.torch_state and c.pp == 1:
        own, kept_bytes = float(c.weight_bytes) * (sharded if c.shard_params else whole), float(c.tokens) * stored
        once = float(c.tokens) * remade + working
        stays = float(c.weight_bytes) * whole_layers if c.shard_params and not c.reshard else 0.0
        moment = torch_twin(c, ends, own, (gradients, passing), layer, kept_bytes, once, head, stays)
        moment["activations"] += float(c.tokens) * embeddings
        found |= moment
    return found


def torch_twin(
    c: Any, ends: float, own: float, sums: tuple[float, float], layer: float, kept: float, once: float, head: float,
    stays: float,
) -> dict[str, float]:  # fmt: skip
    """Return the fullest of three moments of PyTorch's step: the loss, the last layers' backward, its end.

    `stays` is what the forward gathered and did not free.
    """
    weight, main, (gradients, passing) = float(c.weight_bytes), float(c.main_grad_bytes), sums
    root = output = fetched = released = 0.0
    if c.shard_params:
        root, fetched, released = ends, layer, kept / float(c.layers)
        output = float((c.head_params or c.embedding_params) / c.tp)
    buckets = main * own / weight if c.dp * c.cp > 1 and not c.shard_grads else 0.0
    earlier = gradients if c.num_micro > 1 else 0.0  # of micro-batches before
    words = head * (1 + float(c.predict_layers)) * float(c.tokens * c.vocab / c.tp)
    two = own + weight * (root + 2 * fetched)
    begun = buckets + earlier + weight * (output + fetched / 4) + passing
    ended = buckets + gradients + weight * root + passing
    moments = [
        (own + max(weight * root, stays), buckets + earlier, kept, float(c.logit_bytes) * words),
        (max(two, own + stays), begun, kept - released + once, 2 * words),
        (two, ended, kept / float(c.layers) + once, 2 * words),
    ]
    return dict(zip(("parameters", "gradients", "activations", "logits"), max(moments, key=sum), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_columns_say_what_the_twin_says(name: str) -> None:
    one = CASES[name]()
    assert memory(one).as_dict() == pytest.approx(twin(one), rel=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_every_stage_is_that_of_the_twin(name: str) -> None:
    one = CASES[name]()
    pp = int(one.pp)
    *found, routed = zip(*[tuple(float(x) for x in vars(stage).values()) for stage in stages(one)], strict=True)
    found = list(zip(*found, strict=True))
    numbers = [0] if pp == 1 else [0, 1, pp - 1]
    held = [routed_layers(one, number, layers[0]) for number, layers in zip(numbers, found, strict=True)]
    assert list(routed) == pytest.approx(held, rel=1e-13)
    if pp == 1:
        assert found == [pytest.approx(stage_twin(one, 0), rel=1e-13)]
        return
    nothing = (0.0,) * 5
    wanted = [stage_twin(one, 0), stage_twin(one, 1) if pp > 2 else nothing, stage_twin(one, pp - 1)]
    assert found == [pytest.approx(stage, rel=1e-13) for stage in wanted]


@pytest.mark.parametrize("make", [CASES["one rank's model, replicas"], CASES["context parallel"]])
def test_a_column_without_a_pipeline_is_one_stage_beside_those_with(make: Callable[[], Case]) -> None:
    first, *others = stages(stack([make(), CASES["pipeline of four"]()]))
    alone = stage_twin(make(), 0)
    found = [float(np.broadcast_to(x, 2)[0]) for x in vars(first).values()]
    assert found[:-1] == pytest.approx(alone, rel=1e-13)
    for stage in others:
        assert [float(np.broadcast_to(getattr(stage, name), 2)[0]) for name in ("ends", "in_flight", "head")] == [0] * 3


@pytest.mark.parametrize(("layers", "pp"), [(61, 16), (80, 8), (7, 3), (5, 4), (6, 4), (9, 2), (31, 32)])
@pytest.mark.parametrize("even", [0.0, 1.0])
def test_layers_of_the_stages_are_those_of_the_twin(layers: int, pp: int, even: float) -> None:
    one = replace(CASES["pipeline of four"](), layers=np.array(layers), pp=np.array(pp), even_head=np.array(even))
    found = stage_layers(*(np.array(float(x)) for x in (layers, pp, even, one.head_layers)))
    for number, value in zip((0, 1, pp - 1), found, strict=True):
        if pp > 2 or number != 1:
            assert float(value) == pytest.approx(stage_twin(one, number)[0])


def test_many_at_once_as_one_by_one() -> None:
    cases = [make() for make in CASES.values()]
    together = memory(stack(cases))
    for number, one in enumerate(cases):
        alone = memory(one)
        for part, value in alone.as_dict().items():
            assert float(getattr(together, part)[number]) == pytest.approx(value, rel=1e-12), (number, part)
        assert float(together.fits[number]) == float(alone.fits)


def test_what_fits_is_what_the_driver_leaves() -> None:
    one = CASES["one rank's model, replicas"]()
    total = float(memory(one).total)
    for share, fits in ((0.9885, 1.0), (0.98851, 0.0)):
        assert float(memory(replace(one, memory_bytes=np.array(total / share))).fits) == fits
