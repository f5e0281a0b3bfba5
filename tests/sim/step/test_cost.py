"""The price of a step: many at once as one by one, faster parts never slower, and kernels against measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncline.fabric.catalog import load_catalog
from syncline.sim.step.arithmetic.kernels import gemm_s, head_speed
from syncline.sim.step.arithmetic.layer import dense_layer, written_out
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack, take
from syncline.sim.step.constants import default_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import machine_of
from syncline.workload.read_job import load_job

K = default_constants()


def machine(host: str = "dgx-h100", num_gpus: int = 512):
    catalog = load_catalog()
    model = catalog.host(host)
    return machine_of(model, catalog.link(model.link or ""), num_gpus)


def case(host: str = "dgx-h100", **changes: Any) -> Case:
    parallel = {"tp": 8, "pp": 4, "dp": 4, **changes.pop("parallel", {})}
    fields_ = {"model": "llama3-70b", "parallel": parallel, "batch": {"global": 128, "sequence": 8192}, **changes}
    return build_case(load_job(fields_), machine(host))


def test_many_at_once_are_priced_as_one_by_one() -> None:
    cases = [
        case(parallel={"tp": tp, "pp": pp, "dp": dp, "zero": zero}, recompute=redo, precision=precision)
        for tp, pp, dp in ((1, 1, 64), (2, 4, 8), (8, 8, 2))
        for zero in ("none", "1", "fsdp")
        for redo in ("none", "full", "selective")
        for precision in ("bf16", "fp8")
    ] + [case(model="deepseek-v3", parallel={"ep": 8, "tp": 1, "pp": 4, "dp": 8})]
    together = step_cost(stack(cases), K).total
    alone = np.array([float(step_cost(c, K).total) for c in cases])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("column", ["rate_gemm", "rate_bf16", "hbm_Bps", "nvlink_Bps", "nic_Bps"])
def test_faster_hardware_is_never_slower(column: str) -> None:
    for one in (
        case(),
        case(parallel={"tp": 1, "pp": 1, "dp": 128, "zero": "fsdp"}),
        case(parallel={"dp": 16, "pp": 1}),
    ):
        faster = replace(one, **{column: getattr(one, column) * 2})
        assert float(step_cost(faster, K).total) <= float(step_cost(one, K).total)


def test_an_all_to_all_sends_a_copy_for_every_expert_between_hosts() -> None:
    """DeepSeek-V3 over 8 hosts: 8 experts lie on 8 (1 - (7/8)^8) = 5.25 of them."""
    split = {"ep": 64, "tp": 1, "pp": 1, "dp": 64}
    deep, said, unsaid = (
        float(step_cost(case(model="deepseek-v3", parallel=split, **stated), K).ep_call)
        for stated in ({"dispatcher": "deepep"}, {"dispatcher": "alltoall"}, {})
    )
    assert said / deep == pytest.approx(8 / (8 * (1 - (7 / 8) ** 8)), rel=0.02)
    assert unsaid == pytest.approx(deep, rel=0.02), "across hosts tokens are forwarded unless a job says otherwise"


def test_the_parts_add_up() -> None:
    for one in (case(), case(model="mixtral-8x7b", parallel={"ep": 8, "tp": 1, "pp": 1, "dp": 8})):
        cost = step_cost(one, K)
        names = ("compute", "tp", "cp", "ep", "host", "fsdp", "dp", "p2p", "bubble", "optimizer", "fixed")
        assert sum(float(getattr(cost, n)) for n in names) == pytest.approx(float(cost.total), rel=1e-9)


# TFLOP/s of an H200 (torch, bf16 / fp8): the shapes and rates of docs/method/training.md.
MEASURED = [
    (8192, 8192, 8192, 689, 1265), (4096, 4096, 4096, 705, 1152), (2048, 4608, 12288, 690, 1240),
    (8192, 4096, 1024, 624, 972), (8192, 4096, 512, 559, 788), (8192, 1024, 4096, 681, 1109),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k", "bf16", "fp8"), MEASURED)
def test_matrix_products_follow_the_measured_kernels(m: int, n: int, k: int, bf16: float, fp8: float) -> None:
    host = machine("dgx-h200", 8)
    one = build_case(load_job({"model": "llama3-8b", "parallel": {"dp": 8}, "batch": {"global": 8}}), host)
    alone = replace(K, fitted=replace(K.fitted, e_gemm=1.0))  # a kernel by itself, not in a job
    for precision, measured in (("bf16", bf16), ("fp8", fp8)):
        rate = np.asarray(host.rate(precision))
        seconds = gemm_s(one, alone, np.asarray(float(m)), np.asarray(float(n)), np.asarray(float(k)), 2.0, rate)
        assert 2 * m * n * k / float(seconds) / 1e12 == pytest.approx(measured, rel=0.14)


def test_heads_that_do_not_align_are_padded() -> None:
    speed = head_speed(np.array([64.0, 80.0, 96.0, 128.0]))
    assert speed[1] < speed[2] < speed[3] == 1.0
    assert speed[1] == pytest.approx(0.9 * 80 / 96)


def test_interleaving_and_zero_bubble_shrink_the_bubble() -> None:
    plain = float(step_cost(case(), K).bubble)
    assert float(step_cost(case(parallel={"virtual": 5, "schedule": "interleaved"}), K).bubble) == pytest.approx(
        plain / 5
    )
    assert float(step_cost(case(parallel={"schedule": "zero-bubble"}), K).bubble) == pytest.approx(plain / 3)


def test_weak_networks_cost_more_where_groups_leave_the_domain() -> None:
    fast = case(parallel={"tp": 1, "pp": 1, "dp": 64, "zero": "fsdp"})
    slow = replace(fast, nic_Bps=fast.nic_Bps / 40)
    assert float(step_cost(slow, K).fsdp) > 5 * float(step_cost(fast, K).fsdp)
    inside = case(parallel={"tp": 8, "pp": 1, "dp": 1})
    assert float(step_cost(replace(inside, nic_Bps=inside.nic_Bps / 40), K).total) == float(step_cost(inside, K).total)


def test_heads_and_vocabularies_that_do_not_align_are_slow() -> None:
    old = {"software": {"framework": "megatron", "year": 2021}, "batch": {"global": 128, "sequence": 2048}}
    wide = {"layers": 16, "hidden": 13824, "vocab": 51200}
    even, odd = (
        float(step_cost(case("dgx-a100", model=wide | {"heads": heads}, **old), K).total) for heads in (96, 128)
    )
    assert odd > 1.15 * even  # heads of 108 leave the tensor cores, heads of 144 do not
    small = {"layers": 12, "hidden": 768, "heads": 12, "tied": True}
    torch = {"parallel": {"tp": 1, "pp": 1, "dp": 64, "zero": "fsdp"}, "batch": {"global": 512, "micro": 8}}
    padded, prime = (
        float(step_cost(case("dgx-a100", model=small | {"vocab": vocab}, **torch), K).total) for vocab in (50304, 50257)
    )
    assert 1.05 < prime / padded < 1.5


def test_a_layer_is_never_faster_than_the_host_launches_it() -> None:
    tiny = {"layers": 48, "hidden": 256, "heads": 4, "vocab": 1024}
    one = case(model=tiny, parallel={"tp": 1, "pp": 1, "dp": 64}, batch={"global": 64, "sequence": 64})
    assert float(step_cost(one, K).layer.total) == pytest.approx(K.held.launch_fused_s)


def test_small_heads_cost_more_where_products_are_fast() -> None:
    assert head_speed(np.array(64.0), 0.75) == pytest.approx(0.75) and head_speed(np.array(64.0), 1.0) == 1.0
    assert head_speed(np.array(128.0), 0.5) == 1.0


def test_gated_blocks_of_single_operators_move_what_was_counted_by_hand() -> None:
    run: dict[str, Any] = {
        "model": "llama3-8b",
        "parallel": {"tp": 1, "pp": 1, "dp": 64, "zero": "fsdp"},
        "batch": {"global": 64, "micro": 1, "sequence": 8192},
        "software": {"framework": "pytorch", "year": 2024},
    }
    eager, fused = (case("dgx-a100", **run, compiled=compiled) for compiled in (False, True))
    # Two RMSNorms of 36 bytes instead of 4, five operators on 40 heads of 128, two on a gate of 14,336.
    by_hand = 2 * 16 * 4096 + 8 * 40 * 128 + 2 * 14336
    assert float(written_out(eager, eager.ffn)) == by_hand
    assert float(written_out(fused, fused.ffn)) == 0
    more = 3 * 2 * 8192 * by_hand * K.fitted.c_mem / float(eager.hbm_Bps)  # once forward, twice back
    slower = float(step_cost(eager, K).layer.total - step_cost(fused, K).layer.total)
    assert slower == pytest.approx(more, rel=1e-6)
    plain = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 50304, "gated": False}
    assert float(written_out(case("dgx-a100", **{**run, "model": plain}), np.array(16384.0))) == 0


@pytest.mark.parametrize(
    ("host", "said", "flash"),
    [
        ("dgx-2", {}, 0.0),  # FlashAttention-2 and cuDNN's kernels begin with Ampere
        ("dgx-a100", {}, 1.0),
        ("dgx-2", {"attention": "fa2"}, 1.0),  # what a job says is not overruled
        ("dgx-2", {"parallel": {"tp": 1, "pp": 1, "dp": 64, "zero": "fsdp"}}, 1.0),  # PyTorch has a kernel of its own
    ],
)
def test_kernels_exist_from_a_generation_on(host: str, said: dict[str, Any], flash: float) -> None:
    assert float(case(host, precision="fp16", **said).flash) == flash


def test_head_speed_falls_along_the_line_that_was_measured() -> None:
    """With 0.25 lost at 64: a head of 32 loses 2.2 of that, one of 96 loses 0.4, and none above 128 loses any."""
    speed = head_speed(np.array([32.0, 64.0, 96.0, 128.0, 256.0]), 0.75)
    assert speed == pytest.approx([1 - 2.2 * 0.25, 0.75, 1 - 0.4 * 0.25, 1.0, 1.0])


def test_what_a_layer_recomputes_is_the_sum_of_its_repeated_parts() -> None:
    """Full recomputation without the last product repeats everything of the forward but that product."""
    one = case(recompute="none")
    nothing, products, attention, memory = (
        replace(one, redo_gemm=np.array(g), redo_attention=np.array(a), redo_memory=np.array(m), redo_last=np.ones(()))
        for g, a, m in ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    )
    every = replace(products, redo_attention=np.ones(()), redo_memory=np.ones(()))
    redo = [float(dense_layer(each, K, one.ffn).redo) for each in (nothing, products, attention, memory)]
    assert redo[0] == 0.0 and min(redo[1:]) > 0.0
    full = dense_layer(every, K, one.ffn)
    assert float(full.redo) == pytest.approx(sum(redo)) == pytest.approx(float(full.forward))


def test_rows_taken_from_a_case_are_those_rows() -> None:
    together = stack([case(batch={"global": 128, "sequence": length}) for length in (2048, 4096, 8192)])
    some = take(together, np.array([2, 0]))
    assert some.sequence.tolist() == [8192, 2048]
    assert take(together, np.array([False, True, False])).sequence.tolist() == [4096]
    shared = take(replace(together, hidden=np.array(4096.0)), np.array([2, 0]))
    assert shared.hidden.ndim == 0 and float(shared.hidden) == 4096
