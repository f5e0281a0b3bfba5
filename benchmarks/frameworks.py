"""Plans of a search before the frameworks' own checks, and the models that launch files build.

Megatron-Core and -Bridge, torchtitan and DeepSpeed check plans one by one. Fields and parameters of twelve models are
read off what the frameworks make of the written files (`rig/launched.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib import metadata
from typing import Any
from unittest import mock

from rig import launched
from rig.bridge import bridge
from syncline.errors import PlanError
from syncline.fabric import load
from syncline.planning.answer import ask
from syncline.planning.frameworks.fields import TRAINED, fields_of
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch import launch_files
from syncline.planning.frameworks.launch_deepspeed import deepspeed_config
from syncline.planning.frameworks.launch_megatron import megatron_arguments
from syncline.planning.frameworks.launch_torch import torchtitan_values
from syncline.planning.named_job import named_job
from syncline.planning.search import search
from syncline.planning.space import USUAL
from syncline.workload.family.config import shape_from_config
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.zoo import transformer

#: model, GPUs, tokens of a sequence, sequences of a batch: dense, long context (cp), experts (ep) with latent attention
#: and 61 layers on 16 stages, experts alone.
CASES = (
    ("llama3-8b", 256, 8192, 1024),
    ("llama3-70b", 256, 8192, 1024),
    ("qwen3-32b", 256, 8192, 1024),
    ("llama3-405b", 512, 8192, 512),
    ("llama3-405b", 512, 131072, 16),
    ("deepseek-v3", 512, 4096, 2048),
    ("qwen3-30b-a3b", 64, 4096, 512),
)
#: Flags of pretrain_gpt.py by another name than the field of Megatron-Core's config.
RENAMED = {"num_experts": "num_moe_experts", "swiglu": "gated_linear_unit", "fp8_format": "fp8"}
#: Flags that pretrain_gpt.py keeps for itself: data, batch, embedding, optimizer.
TRAINER = {
    "seq_length", "max_position_embeddings", "micro_batch_size", "global_batch_size", "vocab_size",
    "position_embedding_type", "untie_embeddings_and_output_weights", "group_query_attention",
    "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "optimizer_cpu_offload",
    "use_precision_aware_optimizer",
}  # fmt: skip


#: Models whose launch files are read: of the catalogue, and by the numbers of their config.json.
MODELS = ("llama3-8b", "llama3-70b", "llama3-405b", "qwen3-8b", "qwen3-32b", "qwen3-235b-a22b", "mixtral-8x7b",
          "deepseek-v3", "gpt-oss-120b")  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma2-9b": {
        "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000,
        "sliding_window": 4096, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh",
    },
    "phi-2": {
        "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 51200, "partial_rotary_factor": 0.4, "resid_pdrop": 0.1,
    },
    "olmo2-7b": {
        "model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 100352, "rope_theta": 500000, "rms_norm_eps": 1e-6,
    },
}  # fmt: skip


def jobs(framework: str, model: str, gpus: int, sequence: int, batch: int) -> list[Job]:
    """Return the best fifty jobs of a framework."""
    job = named_job("llama3-70b")
    sizes = job.batch.model_copy(update={"sequence": sequence, "global_": batch})
    job = job.model_copy(update={"model": transformer(model), "gpus": gpus, "batch": sizes})
    cluster = load({"hosts": gpus // 8, "host": "dgx-h100", "network": "rail-optimized NDR"})
    question, count = ask(cluster, job)
    found = search(replace(question, framework=framework), count, axes=named_framework(framework).axes(USUAL))
    return [candidate.decision.job(job, question.machine.domain) for candidate in found.best]


def megatron(job: Job, shape: Shape) -> None:
    """Build Megatron-Core's config and layout of the written flags; both raise where they refuse."""
    import torch
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    kind = MLATransformerConfig if shape.mla else TransformerConfig
    known = {field.name for field in fields(kind)}
    given: dict[str, Any] = {"pipeline_dtype": torch.bfloat16}
    for name, value in _flags(megatron_arguments(job, shape)):
        if name == "disable_bias_linear":
            given["add_bias_linear"] = False
        elif name == "num_layers_per_virtual_pipeline_stage":
            given["virtual_pipeline_model_parallel_size"] = shape.layers // job.parallel.pp // int(value)
        elif name == "moe_layer_freq":
            given[name] = [int(layer >= shape.layers - shape.moe_layers) for layer in range(shape.layers)]
        elif name not in TRAINER:
            if RENAMED.get(name, name) not in known:
                raise ValueError(f"Megatron-Core has no {name}")
            given[RENAMED.get(name, name)] = int(value) if isinstance(value, str) and value.isdigit() else value
    kind(**given)
    if text := given.get("pipeline_model_parallel_layout"):
        layout = PipelineParallelLayerLayout.from_str(text, job.parallel.pp)
        layout.validate_layer_layout(shape.layers, given.get("mtp_num_layers"))


def _flags(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Return flags with their values; True for one that has none."""
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            yield word[2:].replace("-", "_"), True if after.startswith("--") else after


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
        ep=split.expert_parallel_degree, world_size=job.gpus or 1,
    )  # fmt: skip


def deepspeed(job: Job, shape: Shape) -> None:
    """Build DeepSpeed's config of the written file; it raises where batches do not multiply out or a key is unknown."""
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    with mock.patch.object(comm, "get_rank", return_value=0):  # without a group it takes every world for one rank
        DeepSpeedConfig(deepspeed_config(job, shape), mpu=_Replicas(job.parallel.dp or 1))


@dataclass(frozen=True)
class _Replicas:
    """What DeepSpeed asks of a launcher before it reads a config."""

    count: int

    def get_data_parallel_world_size(self) -> int:
        return self.count


CHECKS = (
    ("megatron", "megatron-core", megatron),
    ("torchtitan", "torchtitan", torchtitan),
    ("deepspeed", "deepspeed", deepspeed),
    ("nemo", "megatron-bridge", bridge),
)


def models() -> dict[str, Any]:
    """Return, of each framework, the models that its files build, the fields that differ, and those it is refused."""
    figures: dict[str, Any] = {}
    shapes = [*map(transformer, MODELS), *(shape_from_config(config, name) for name, config in CONFIGS.items())]
    for framework, read in (("megatron", launched.megatron), ("torchtitan", launched.torchtitan),
                            ("deepspeed", launched.transformers), ("maxtext", launched.maxtext)):  # fmt: skip
        differ, refused, params, count = dict[str, Any](), [], dict[str, int](), 0
        left: list[str] = []
        for shape in shapes:
            job = load_job({"model": shape, "batch": {"global": 512, "sequence": 4096}, "tokens": "1T",
                            "parallel": {"zero": "1" if framework == "megatron" else "3"}}).on(64)  # fmt: skip
            try:
                files = launch_files(framework, job, 8)
            except PlanError as error:
                refused.append(error.message)
                continue
            found, built = read(files)
            wanted, count = fields_of(shape), count + len(found)
            other = {key: [found[key], wanted[key]] for key in found if found[key] != wanted[key]}
            if "for which" in files["run.sbatch"]:  # listed in the file itself: training settings without an argument
                left += [f"{shape.name}: {key}" for key in TRAINED if other.pop(key, None)]
            if other:
                differ[shape.name] = other
            if built:
                params[shape.name] = built - shape.params
        figures[framework] = {"fields_read": count, "fields_that_differ": differ, "parameters_over": params,
                              "left_to_the_user": left, "refused": refused}  # fmt: skip
    return figures


def run() -> dict[str, Any]:
    """Return how many plans each framework takes, and what differs in the models that it builds."""
    figures: dict[str, Any] = {"case": "best 50 plans of each on H100: model, GPUs, sequence, batch", "cases": CASES}
    for name, package, check in CHECKS:
        try:
            figures[f"{name}_version"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            figures[f"{name}_left_out"] = f"{package} is not installed"
            continue
        tried, refused = 0, []
        accepted: dict[str, int | str] = {}
        for case in CASES:
            taken, where = 0, f"{case[0]}, {case[1]} GPUs, {case[2]:,}"
            try:
                found = jobs(name, *case)
            except PlanError as error:  # a config of DeepSpeed alone splits no model
                accepted[where] = f"no plan: {error.message}"
                continue
            for job in found:
                assert isinstance(job.model, Shape)
                tried += 1
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        check(job, job.model)
                    taken += 1
                except (ValueError, AssertionError) as error:  # pydantic's are ValueErrors
                    refused.append(f"{case}: {error}")
            accepted[where] = taken
        good = sum(count for count in accepted.values() if isinstance(count, int))
        figures |= {f"{name}_plans": tried, f"{name}_accepted": good, f"{name}_by_case": accepted}
        figures[f"{name}_refusals"] = refused[:3]
    return figures | {"models": models()}
