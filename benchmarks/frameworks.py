"""The best plans of a search, one by one, before the argument checks of Megatron-Core and torchtitan themselves."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib import metadata
from typing import Any

from syncline.fabric import load
from syncline.plan.answer import ask
from syncline.plan.frameworks.framework import named_framework
from syncline.plan.frameworks.launch_megatron import layout_text
from syncline.plan.frameworks.launch_torch import torchtitan_values
from syncline.plan.named_job import named_job
from syncline.plan.search import search
from syncline.plan.space import USUAL
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.zoo import transformer

MODELS = ("llama3-8b", "llama3-70b", "qwen3-32b")
GPUS = 256


def jobs(framework: str, model: str) -> list[Job]:
    """Return the best fifty jobs of a framework."""
    job = named_job("llama3-70b").model_copy(update={"model": transformer(model), "gpus": GPUS})
    question, gpus = ask(load("h100-64-rail"), job)
    found = search(replace(question, framework=framework), gpus, axes=named_framework(framework).axes(USUAL))
    return [candidate.decision.job(job, question.machine.domain) for candidate in found.best]


def megatron(job: Job, shape: Shape) -> None:
    """Build Megatron-Core's config and layout; both raise where they refuse."""
    import torch
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import TransformerConfig

    split = job.parallel
    even = shape.layers % (split.pp * split.virtual) == 0
    text = None if even else layout_text(shape.layers, split.pp, split.virtual)
    if text:
        PipelineParallelLayerLayout.from_str(text, split.pp).validate_layer_layout(shape.layers, None)
    TransformerConfig(
        num_layers=shape.layers, hidden_size=shape.hidden, num_attention_heads=shape.heads,
        num_query_groups=shape.num_kv_heads, kv_channels=shape.qk_size, tensor_model_parallel_size=split.tp,
        pipeline_model_parallel_size=split.pp, context_parallel_size=split.cp, pipeline_dtype=torch.bfloat16, bf16=True,
        virtual_pipeline_model_parallel_size=split.virtual if split.virtual > 1 and even else None,
        pipeline_model_parallel_layout=text, sequence_parallel=split.tp > 1,
    )  # fmt: skip


def torchtitan(job: Job, shape: Shape) -> None:
    """Build torchtitan's configs and mesh sizes; they raise where they refuse."""
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.distributed.parallel_dims import ParallelDims

    values: dict[str, dict[str, Any]] = {"training": {}, "parallelism": {}}
    for name, value in torchtitan_values(job, shape).items():
        part, _, field = name.partition(".")
        values[part][field] = value
    TrainingConfig(**values["training"])
    split = ParallelismConfig(**values["parallelism"])
    ParallelDims(
        dp_replicate=split.data_parallel_replicate_degree, dp_shard=split.data_parallel_shard_degree,
        cp=split.context_parallel_degree, tp=split.tensor_parallel_degree, pp=split.pipeline_parallel_degree,
        ep=split.expert_parallel_degree, world_size=GPUS,
    )  # fmt: skip


def run() -> dict[str, Any]:
    """Return how many plans each framework takes."""
    figures: dict[str, Any] = {"case": f"{', '.join(MODELS)} on {GPUS} H100, best 50 plans each"}
    for name, package, check in (("megatron", "megatron-core", megatron), ("torchtitan", "torchtitan", torchtitan)):
        try:
            figures[f"{name}_version"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            figures[f"{name}_left_out"] = f"{package} is not installed"
            continue
        tried, refused = 0, []
        for model in MODELS:
            for job in jobs(name, model):
                assert isinstance(job.model, Shape)
                tried += 1
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        check(job, job.model)
                except (ValueError, AssertionError) as error:
                    refused.append(f"{model}: {error}")
        figures |= {f"{name}_plans": tried, f"{name}_accepted": tried - len(refused), f"{name}_refusals": refused[:3]}
    return figures
