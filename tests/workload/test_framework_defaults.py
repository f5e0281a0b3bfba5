"""Frameworks' own defaults: what a job that names its framework, and says no more, is priced with."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.software import facts_of

#: Of megatron-core 0.16.1: `megatron/core/distributed/distributed_data_parallel_config.py`, `model_parallel_config.py`.
MEGATRON_CORE = {"overlap_grad_reduce": False, "overlap_param_gather": False, "tp_comm_overlap": False}
#: Of Megatron-LM's `megatron/training/arguments.py`: `--bf16` sums in fp32 unless `--grad-reduce-in-bf16`.
MEGATRON_BF16_GRADIENT_BYTES = 4
FILES = ("distributed/distributed_data_parallel_config.py", "model_parallel_config.py")


def job(framework: str, **fields: object) -> Job:
    return load_job(
        {"model": "llama3-8b", "batch": {"global": 64}, "parallel": {"dp": 8, "tp": 2, "zero": "1"},
         "software": {"framework": framework, "year": 2026}, **fields}
    )  # fmt: skip


def released() -> dict[str, object] | None:
    """Return the defaults of the installed package, read from its source without importing it; None: there is none."""
    found = importlib.util.find_spec("megatron")
    if found is None or not found.submodule_search_locations:
        return None
    core = Path(next(iter(found.submodule_search_locations))) / "core"
    fields: dict[str, object] = {}
    for name in FILES:
        for node in ast.walk(ast.parse((core / name).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if isinstance(node.value, ast.Constant):
                fields[node.target.id] = node.value.value
    return fields


def test_megatron_overlaps_nothing_and_sums_in_fp32_unless_told() -> None:
    facts = facts_of(job("megatron"))
    assert facts.dp_overlap is MEGATRON_CORE["overlap_grad_reduce"]
    assert facts.tp_overlap is MEGATRON_CORE["tp_comm_overlap"]
    assert facts.gradient_bytes == facts.main_grad_bytes == MEGATRON_BF16_GRADIENT_BYTES
    told = facts_of(job("megatron", overlap={"dp": True}, gradient_bytes=2))
    assert told.dp_overlap and told.gradient_bytes == told.main_grad_bytes == 2


def test_the_kept_table_is_that_of_the_released_package() -> None:
    fields = released()
    if fields is None:
        pytest.skip("megatron-core is not installed")
    assert {name: fields[name] for name in MEGATRON_CORE} == MEGATRON_CORE


def test_recipes_of_nemo_overlap_and_sum_in_bf16() -> None:
    facts = facts_of(job("nemo"))
    assert facts.dp_overlap and facts.tp_overlap and facts.gradient_bytes == facts.main_grad_bytes == 2


def test_a_job_without_a_framework_is_priced_as_a_plan_would_start_it() -> None:
    facts = facts_of(job("auto"))
    assert facts.framework == "megatron" and facts.dp_overlap and facts.gradient_bytes == 4


def test_torchtitan_is_pytorchs_fsdp() -> None:
    split = {"parallel": {"dp": 8, "zero": "fsdp"}}
    assert vars(facts_of(job("torchtitan", **split))) == vars(facts_of(job("pytorch", **split)))


def test_zero_2_is_not_megatrons() -> None:
    facts = facts_of(job("auto", parallel={"dp": 8, "zero": "2"}))
    assert facts.framework == "deepspeed" and facts.assumed["framework"] == "deepspeed"
