"""Releases: dated, sourced, and the newest until a month holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.fabric import load
from syncline.fabric.catalog import load_catalog
from syncline.sim.step.build import on_part
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.read_job import load_job
from syncline.workload.releases import Release, release_of, releases
from syncline.workload.software import facts_of

EXPERTS = {"model": "mixtral-8x7b", "batch": {"global": 64}, "parallel": {"dp": 8, "ep": 8}}


def test_every_framework_of_a_job_has_releases_in_order() -> None:
    assert set(releases()) == {"megatron", "nemo", "deepspeed", "pytorch", "automodel"}
    for mine in (*releases().values(), *releases("deepep").values()):
        months = [since for since, _ in mine]
        assert months == sorted(months) and len(set(months)) == len(months)


def test_what_no_entry_changes_stays() -> None:
    assert release_of("megatron", 2022, 12).attention == "unfused"
    assert release_of("megatron", 2023, 1).attention == "fa2"
    assert release_of("megatron", 2030, 1).compiled, "said once, years before"
    assert release_of("deepspeed", 1999, 1) == Release()


@pytest.mark.parametrize(("month", "routing"), [(1, 0.35), (6, 0.35), (7, 0.1)])
def test_a_job_gets_the_release_of_its_month(month: int, routing: float) -> None:
    facts = facts_of(load_job({**EXPERTS, "software": {"framework": "nemo", "year": 2026, "month": month}}))
    assert facts.routing == routing


def test_a_job_that_says_so_hides_its_dispatch() -> None:
    said = {key: facts_of(load_job({**EXPERTS, "overlap": {"ep": key}})).ep_exposed for key in (True, False, None)}
    assert said[True] < said[None] == said[False] == 1.0


def test_tokens_of_pytorch_go_by_all_to_all_unless_a_job_says_otherwise() -> None:
    torch = {**EXPERTS, "software": {"framework": "pytorch", "year": 2025, "month": 9}}
    plain, deep = facts_of(load_job(torch)), facts_of(load_job({**torch, "dispatcher": "deepep"}))
    assert not plain.dispatch_once and deep.dispatch_once
    assert plain.expert_passes == 2 + 4 + 2 + 10 + 3, "gathered, permuted, back, weighed, summed: moe.py of torchtitan"
    assert deep.expert_passes == 4
    assert facts_of(load_job({**torch, "cuda_graphs": True})).dispatch_once, "a captured step waits for no counts"
    assert facts_of(load_job(torch | {"parallel": {"dp": 8}})).routing == 0, "grouped products wait for no counts"


def test_a_dispatcher_wins_over_the_release() -> None:
    nemo = {**EXPERTS, "software": {"framework": "nemo", "year": 2026}}
    assert facts_of(load_job(nemo)).dispatch_once, "HybridEP since 2025-11"
    assert not facts_of(load_job({**nemo, "dispatcher": "alltoall"})).dispatch_once


def test_automodel_is_pytorch_with_deepep_and_transformer_engine() -> None:
    said = {name: {**EXPERTS, "software": {"framework": name, "year": 2026}} for name in ("automodel", "pytorch")}
    own, torch = facts_of(load_job(said["automodel"])), facts_of(load_job(said["pytorch"]))
    assert own.framework == torch.framework == "pytorch"
    assert own.dispatch_once and not torch.dispatch_once
    assert (own.attention, own.expert_passes) == ("cudnn", 4)
    plain = facts_of(load_job({**said["automodel"], "dispatcher": "alltoall"}))
    assert not plain.dispatch_once and plain.expert_passes == torch.expert_passes


@pytest.mark.parametrize(
    ("month", "gpu", "kernel"),
    [(9, "H100-SXM5-80GB", "fa2"), (10, "H100-SXM5-80GB", "cudnn"), (10, "A100-SXM4-80GB", "fa2")],
)
def test_pytorch_picks_cudnns_attention_on_hopper_since_2_9(month: int, gpu: str, kernel: str) -> None:
    """Where a job names its kernel, that is what runs."""
    machine = replace(machine_from_fabric(load("h100-64-rail")), gpu=load_catalog().gpu(gpu))
    job = {"model": "llama3-8b", "batch": {"global": 64}, "parallel": {"dp": 8, "zero": "fsdp"},
           "software": {"framework": "pytorch", "year": 2025, "month": month}}  # fmt: skip
    assert on_part(facts_of(load_job(job)), machine.gpu.architecture).attention == kernel
    assert on_part(facts_of(load_job({**job, "attention": "fa2"})), machine.gpu.architecture).attention == "fa2"
