"""Recipes of fp8 and fp4: what is scaled finer costs more, and bf16 costs nothing of it."""

from __future__ import annotations

import pytest

from syncline.fabric.catalog import load_catalog
from syncline.sim.step import default_constants, step_cost
from syncline.sim.step.build import build_case
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
