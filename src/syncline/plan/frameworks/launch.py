"""The files that start a planned job: arguments or a config, the stages, the rank order, environment and a job script.

files = launch_files("megatron", job, gpus_per_host=8)
files["arguments.txt"], files["run.sbatch"]
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping

from syncline.describe.plain import JsonObject
from syncline.errors import PlanError
from syncline.plan.frameworks.framework import named_framework
from syncline.plan.frameworks.launch_megatron import megatron_arguments, nemo_overrides
from syncline.plan.frameworks.launch_script import jobset, sbatch
from syncline.plan.frameworks.launch_torch import WRITTEN, torchtitan_arguments, torchtitan_module
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.stages import stage_layout

#: Where each of these is started from; the user's own paths go there.
ENTRY = {
    "megatron": "pretrain_gpt.py",
    "torchtitan": "-m torchtitan.train",
    "nemo": "scripts/performance/run_script.py",
    "deepspeed": "train.py",
    "maxtext": "-m MaxText.train",
}


def launch_files(framework: str, job: Job, gpus_per_host: int) -> dict[str, str]:
    """Return the files by name. The job has its split filled in (`PlanAnswer.job`)."""
    if not isinstance(job.model, Shape):
        raise PlanError(f"{job.model.name} is a list of layers; nothing starts it.")
    named_framework(framework).check_model(job.model)
    files: dict[str, str] = {}
    command: list[str]
    if framework == "megatron":
        command = megatron_arguments(job, job.model)
    elif framework == "nemo":
        command = nemo_overrides(job, job.model)
    elif framework == "torchtitan":
        command = torchtitan_arguments(job, job.model)
        if text := torchtitan_module(job, job.model):
            files[f"{WRITTEN}.py"] = text
    elif framework == "deepspeed":
        files["ds_config.json"] = json.dumps(deepspeed_config(job), indent=2) + "\n"
        command = ["--deepspeed", "--deepspeed_config", "ds_config.json"]
    else:
        files["config.yml"] = maxtext_config(job, job.model, gpus_per_host)
        command = ["config.yml"]
    if framework not in ("deepspeed", "maxtext"):
        files["arguments.txt"] = "\n".join(shlex.quote(word) for word in command) + "\n"
    environment = environment_of(framework, job)
    files["environment.sh"] = "".join(f"export {name}={value}\n" for name, value in environment.items())
    files["ranks.json"] = json.dumps(ranks_of(job, gpus_per_host), indent=2) + "\n"
    jax = framework == "maxtext"
    files["run.sbatch"] = sbatch(job, gpus_per_host, ENTRY[framework], command, environment, jax=jax)
    files["jobset.yaml"] = jobset(job, gpus_per_host, ENTRY[framework], command, environment, jax=jax)
    return files


def environment_of(framework: str, job: Job) -> dict[str, str]:
    """Return what the processes must find in their environment."""
    found = {"NCCL_DEBUG": "WARN"}
    if framework != "maxtext":
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if framework in ("megatron", "nemo") and job.parallel.tp > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # kernels of a layer start in order, so that exchanges overlap
    return found


def ranks_of(job: Job, gpus_per_host: int) -> JsonObject:
    """Return how ranks count: the first axis changes fastest, and which ranks make each kind of group first."""
    split = job.parallel
    sizes = {"tp": split.tp, "cp": split.cp, "dp": split.dp or 1, "pp": split.pp}
    groups, stride = {}, 1
    for name, size in sizes.items():
        groups[name] = [stride * number for number in range(size)]
        stride *= size
    shape = job.model
    assert isinstance(shape, Shape)
    return {
        "order": "tp-cp-dp-pp",
        "sizes": sizes,
        "ranks": stride,
        "gpus_per_host": gpus_per_host,
        "first_group": groups,
        "layers_of_stages": [list(c) for c in stage_layout(shape.layers, split.pp, split.virtual)],
    }


def deepspeed_config(job: Job) -> JsonObject:
    """Return a DeepSpeed config; its batch sizes multiply out, which DeepSpeed checks."""
    split, stage = job.parallel, {"none": 0, "1": 1, "2": 2, "3": 3, "fsdp": 3}.get(job.parallel.zero, 3)
    zero: JsonObject = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if job.offload in ("optimizer", "both"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: JsonObject = {
        "train_batch_size": job.batch.global_,
        "train_micro_batch_size_per_gpu": job.batch.micro,
        "gradient_accumulation_steps": job.batch.global_ // (job.batch.micro * (split.dp or 1)),
        "zero_optimization": zero,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": job.precision in ("bf16", "fp8")},
        "fp16": {"enabled": job.precision == "fp16"},
    }
    if job.recompute == "full":
        config["activation_checkpointing"] = {"partition_activations": False, "contiguous_memory_optimization": False}
    return config


def mesh_of(job: Job, gpus_per_host: int) -> dict[str, int]:
    """Return MaxText's mesh: axes within a host (`ici_`) multiply to its GPUs, those across (`dcn_`) to the hosts.

    No axis is left to be filled in: base.yml leaves `dcn_data_parallelism` so, and MaxText takes one at most.
    """
    split = job.parallel
    sizes = {"tensor": split.tp, "context": split.cp, "expert": split.ep, "fsdp": (split.dp or 1) // split.ep}
    room, inside, across = gpus_per_host, dict[str, int](), {"data": 1}
    for axis, size in sizes.items():
        inside[axis] = math.gcd(size, room)
        across[axis], room = size // inside[axis], room // inside[axis]
    return {f"{where}_{axis}_parallelism": size
            for where, axes in (("ici", inside), ("dcn", across)) for axis, size in axes.items()}  # fmt: skip


def maxtext_config(job: Job, shape: Shape, gpus_per_host: int) -> str:
    """Return a MaxText config that stands on its base.yml."""
    split = job.parallel
    values: Mapping[str, object] = {
        "base_config": "base.yml",
        "run_name": job.name,
        "hardware": "gpu",
        "attention": "cudnn_flash_te",
        "base_num_decoder_layers": shape.layers,
        "base_emb_dim": shape.hidden,
        "base_num_query_heads": shape.heads,
        "base_num_kv_heads": shape.num_kv_heads,
        "base_mlp_dim": shape.ffn_size,
        "head_dim": shape.qk_size,
        "vocab_size": shape.vocab,
        "logits_via_embedding": str(shape.tied).lower(),
        "max_target_length": job.batch.sequence,
        "per_device_batch_size": job.batch.micro / (split.tp * split.cp),
        "gradient_accumulation_steps": job.num_micro,
        "remat_policy": "full" if job.recompute == "full" else "minimal_flash",
        **mesh_of(job, gpus_per_host),
        "dtype": "bfloat16",
        "weight_dtype": "float32",
    }
    if shape.moe:
        values = {
            **values,
            "num_experts": shape.moe.experts,
            "num_experts_per_tok": shape.moe.top_k,
            "base_moe_mlp_dim": shape.moe.ffn,
        }
    return "".join(f"{name}: {value}\n" for name, value in values.items())
