"""Recipes of fp8 and fp4: what is scaled finer costs more, and bf16 costs nothing of it."""

from __future__ import annotations

import itertools

import pytest

from syncline.errors import DescriptionError
from syncline.fabric.catalog import load_catalog
from syncline.sim.step.build import build_case
from syncline.sim.step.constants import default_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import machine_of
from syncline.workload.read_job import load_job


def step_s(**said: object) -> float:
    catalog = load_catalog()
    machine = machine_of(catalog.host("dgx-h100"), catalog.link("NDR"), 64)
    job = load_job({"model": "llama3-70b", "batch": {"global": 256, "sequence": 8192}, "gpus": 64,
                    "parallel": {"tp": 4, "pp": 4}, **said})  # fmt: skip
    return float(step_cost(build_case(job.on(64), machine), default_constants()).total)


def test_finer_scales_take_longer() -> None:
    times = [step_s(precision="fp8", recipe=name) for name in ("tensorwise", "mx", "block", "rowwise")]
    assert times == sorted(times) and len(set(times)) == 4
    assert times[0] == step_s(precision="fp8")
    assert times[-1] < 1.1 * step_s(precision="bf16"), "torchtitan's rowwise 70B ran as long as its bf16"


def test_casts_that_ride_on_norms_cost_less() -> None:
    old, new = ({"framework": "megatron", "year": year, "month": 1} for year in (2023, 2024))
    assert step_s(precision="fp8", software=new, attention="fa2") < step_s(precision="fp8", software=old)


def test_a_recipe_means_nothing_in_bf16() -> None:
    assert step_s(precision="bf16", recipe="rowwise") == pytest.approx(step_s(precision="bf16"))


def test_adapters_touch_memory_that_frozen_weights_do_not() -> None:
    from syncline.sim.step.arithmetic.layer import elements

    catalog = load_catalog()
    machine = machine_of(catalog.host("dgx-h100"), catalog.link("NDR"), 8)
    cases = [
        build_case(load_job({"model": "llama2-70b", "batch": {"global": 8, "sequence": 8192}, "gpus": 8,
                             "parallel": {"tp": 4}, "frozen": frozen}).on(8), machine)
        for frozen in (False, True)
    ]  # fmt: skip
    plain, adapted = (float(elements(case, case.ffn)) for case in cases)
    # By hand: inputs of four projections once, outputs twice, over tp 4.
    hidden, qkv, ffn = 8192, (64 + 16) * 128, 28672
    assert adapted - plain == pytest.approx((3 * hidden + ffn + 2 * (qkv + 2 * hidden + 2 * ffn)) / 4)


def test_a_larger_rank_of_adapters_takes_more_of_everything() -> None:
    from syncline.sim.step.step import step

    catalog = load_catalog()
    machine = machine_of(catalog.host("dgx-h100"), catalog.link("NDR"), 64)
    given = {"model": "llama3-70b", "batch": {"global": 64, "sequence": 8192}, "parallel": {"tp": 8, "pp": 2},
             "frozen": True}  # fmt: skip
    found = [step(machine, load_job(given | {"adapter_rank": rank})) for rank in (8, 64, 256, 1024)]
    for less, more in itertools.pairwise(found):
        assert more.step_time_s > less.step_time_s
        assert more.memory_bytes["total"] > less.memory_bytes["total"]
        assert more.comm_bytes["data"]["network"] > less.comm_bytes["data"]["network"]
    # By hand: q and o 2 x 16,384, k and v 2 x 9,216, three products of a block 36,864 each, in 80 layers; rank 64 of it
    # on 16 ranks in four bytes.
    widths = 80 * (2 * 16384 + 2 * 9216 + 3 * 36864)
    assert found[1].memory_bytes["gradients"] == pytest.approx(4 * 64 * widths / 16, rel=0.02)
    whole = step(machine, load_job({key: value for key, value in given.items() if key != "frozen"}))
    assert found[-1].step_time_s < whole.step_time_s


def test_a_rank_of_adapters_is_for_frozen_weights() -> None:
    with pytest.raises(DescriptionError, match="adapter_rank is for weights that are frozen"):
        load_job({"model": "llama3-8b", "batch": {"global": 8}, "adapter_rank": 8})
