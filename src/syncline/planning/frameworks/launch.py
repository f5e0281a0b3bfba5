"""The files that start a planned job: arguments or a config, the stages, the rank order, environment and a job script.

files = launch_files("megatron", job, gpus_per_host=8)
files["arguments.txt"], files["run.sbatch"]
"""

from __future__ import annotations

import json
import shlex

from syncline.describe.plain import JsonObject
from syncline.errors import PlanError
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch_maxtext import maxtext_config
from syncline.planning.frameworks.launch_megatron import megatron_arguments, nemo_overrides
from syncline.planning.frameworks.launch_script import jobset, sbatch
from syncline.planning.frameworks.launch_torch import WRITTEN, torchtitan_arguments, torchtitan_module
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.stages import stage_layout

#: Where each of these is started from; the user's own paths go there.
ENTRY = {
    "megatron": "pretrain_gpt.py",
    "torchtitan": "-m torchtitan.train",
    "nemo": "scripts/performance/run_script.py",
    "deepspeed": "train.py",
    "maxtext": "-m maxtext.trainers.pre_train.train",
}


def launch_files(framework: str, job: Job, gpus_per_host: int) -> dict[str, str]:
    """Return the files by name. The job has its split filled in (`PlanAnswer.job`)."""
    if not isinstance(job.model, Shape):
        raise PlanError(f"{job.model.name} is a list of layers, and no framework starts one.")
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
