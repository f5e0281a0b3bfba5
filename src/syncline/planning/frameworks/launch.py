"""The files that start a planned job: arguments or a config, the stages, the rank order, environment and a job script.

files = launch_files("megatron", job, gpus_per_host=8)
files["arguments.txt"], files["run.sbatch"]
"""

from __future__ import annotations

import json
import shlex

from syncline.describe.plain import JsonObject
from syncline.errors import PlanError
from syncline.planning.frameworks.fields import fields_of
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch_deepspeed import MODEL, deepspeed_files, transformers_kind
from syncline.planning.frameworks.launch_maxtext import maxtext_config
from syncline.planning.frameworks.launch_megatron import megatron_arguments
from syncline.planning.frameworks.launch_nemo import SCRIPT, nemo_overrides, nemo_script
from syncline.planning.frameworks.launch_script import jobset, sbatch
from syncline.planning.frameworks.launch_torch import WRITTEN, torchtitan_arguments, torchtitan_module
from syncline.planning.frameworks.updates import left_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.stages import stage_layout

#: Where each of these is started from; the user's own paths go there.
ENTRY = {
    "megatron": "pretrain_gpt.py",
    "torchtitan": "-m torchtitan.train",
    "nemo": SCRIPT,
    "deepspeed": "train.py",
    "maxtext": "-m maxtext.trainers.pre_train.train",
}


def launch_files(framework: str, job: Job, gpus_per_host: int) -> dict[str, str]:
    """Return the files by name. The job has its split filled in (`PlanAnswer.job`)."""
    if not isinstance(job.model, Shape):
        raise PlanError(f"{job.model.name} is a list of layers, and no framework starts one.")
    named_framework(framework).check_width(job)
    named_framework(framework).dialect(job.model)
    files: dict[str, str] = {}
    command: list[str]
    if framework == "megatron":
        command = megatron_arguments(job, job.model)
    elif framework == "nemo":
        files[SCRIPT] = nemo_script(job, job.model)
        command = nemo_overrides(job, job.model)
    elif framework == "torchtitan":
        files[f"{WRITTEN}.py"] = torchtitan_module(job, job.model)
        command = torchtitan_arguments(job, job.model)
    elif framework == "deepspeed":
        files = deepspeed_files(job, job.model)
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
    left = "".join(f"# Left to you: {text}.\n" for text in _left(framework, job, job.model))
    script = sbatch(job, gpus_per_host, ENTRY[framework], command, environment, jax=jax)
    files["run.sbatch"] = script.replace("set -euo pipefail\n", f"{left}set -euo pipefail\n", 1)
    files["jobset.yaml"] = left + jobset(job, gpus_per_host, ENTRY[framework], command, environment, jax=jax)
    if jax:
        files["config.yml"] = left + files["config.yml"]
    return files


def _left(framework: str, job: Job, shape: Shape) -> list[str]:
    """Return what the files do not decide: of the model, of its training, and where data are."""
    found, title = left_of(job, shape), named_framework(framework).title
    dialect = named_framework(framework).dialect(shape)
    if framework == "deepspeed":
        title, dialect = "transformers", transformers_kind(shape)
        made = f"the script, which builds the model of {MODEL} (AutoConfig, AutoModelForCausalLM.from_config)"
        found.insert(0, made if dialect else f"the model: transformers has none like {shape.name}")
    if framework == "torchtitan" and job.precision == "fp8":
        found.insert(0, "torchao, which converts the linear layers to fp8: pip install torchao")
    leaves = dialect.leaves(fields_of(shape)) if dialect else []
    return found + [f"{text}, for which {title} has no argument" for text in leaves]


def environment_of(framework: str, job: Job) -> dict[str, str]:
    """Return what the processes must find in their environment."""
    found = {"NCCL_DEBUG": "WARN"}
    if framework != "maxtext":
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if framework in ("megatron", "nemo") and max(job.parallel.tp, job.parallel.cp) > 1:
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
        "layers_of_stages": [list(c) for c in stage_layout(shape.layers, split.pp, split.virtual, shape.head_layers)],
    }
