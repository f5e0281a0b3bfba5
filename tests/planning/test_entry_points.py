"""What entry points refused or built otherwise: positions, stages, and the activation that a bias is fused in.

`benchmarks/frameworks.py` brings random plans to those entry points.
"""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import DescriptionError, PlanError
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch import launch_files
from syncline.planning.frameworks.launch_nemo import nemo_overrides
from syncline.planning.frameworks.launch_torch import torchtitan_module
from syncline.planning.named_job import named_job
from syncline.planning.space import rows_of
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.stages import stage_layout


def job_of(model: str, sequence: int = 4096, **parallel: Any) -> Job:
    batch = {"global": 512, "micro": 1, "sequence": sequence}
    return load_job({"model": model, "batch": batch, "tokens": "1T", "parallel": parallel}).on(64)


def test_a_table_of_positions_holds_the_sequence() -> None:
    with pytest.raises(DescriptionError, match="a sequence of 4,096 is longer than the table of 2,048 positions"):
        job_of("gpt3-1.3b", 4096)
    assert named_job("gpt3-1.3b").batch.sequence == 2048 and named_job("llama3-8b").batch.sequence == 8192
    job = job_of("gpt3-1.3b", 1024)
    assert len(named_framework("megatron").keep(rows_of(job, 64, 8), job))
    with pytest.raises(PlanError, match="cannot run gpt3") as raised:
        named_framework("nemo").keep(rows_of(job, 64, 8), job)
    assert "Rule positions" in str(raised.value.detail)


@pytest.mark.parametrize(
    ("model", "pp", "virtual"), [("llama3-70b", 32, 1), ("llama3-405b", 16, 8), ("llama3-8b", 4, 2)]
)
def test_torchtitan_cuts_the_model_as_planned(model: str, pp: int, virtual: int) -> None:
    schedule: dict[str, Any] = {"schedule": "interleaved", "virtual": virtual} if virtual > 1 else {}
    job = job_of(model, pp=pp, zero="3", **schedule)
    shape = job.model
    assert isinstance(shape, Shape)
    lines = torchtitan_module(job, shape).splitlines()
    begin = next(number for number, line in enumerate(lines) if "layers = iter" in line)
    found: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in lines[begin : begin + 4]), found)
    parts, laid = found["parts"], stage_layout(shape.layers, pp, virtual, shape.head_layers)
    assert parts[0][0] == "tok_embeddings" and parts[-1][-2:] == ["norm", "lm_head"]
    assert [word for part in parts for word in part][1:-2] == [f"layers.{layer}" for layer in range(shape.layers)]
    counts = [sum(word.startswith("layers.") for word in part) for part in parts]
    assert counts == [laid[number % pp][number // pp] for number in range(pp * virtual)]


def test_nemo_is_told_to_fuse_the_bias_into_gelu() -> None:
    shape = job_of("gpt3-1.3b", 2048).model
    assert isinstance(shape, Shape)
    assert "model.bias_activation_fusion=true" in nemo_overrides(job_of("gpt3-1.3b", 2048), shape)


def test_nemo_is_told_of_latent_attention() -> None:
    shape = job_of("deepseek-v2").model
    assert isinstance(shape, Shape)
    assert "model.multi_latent_attention=true" in nemo_overrides(job_of("deepseek-v2"), shape)


@pytest.mark.parametrize("pp", [1, 4])
def test_torchtitan_pipelines_reduce_the_output_layer_once(pp: int) -> None:
    job = job_of("llama3-8b", pp=pp, zero="3")
    assert isinstance(job.model, Shape)
    assert ("config.loss = config.loss.loss_fn" in torchtitan_module(job, job.model)) == (pp > 1)


def test_fp8_names_the_package_that_torchtitan_needs() -> None:
    job = job_of("llama3-8b", zero="3")
    for precision, named in (("fp8", True), ("bf16", False)):
        files = launch_files("torchtitan", job.model_copy(update={"precision": precision}), 8)
        assert ("# Left to you: torchao" in files["run.sbatch"]) == named
