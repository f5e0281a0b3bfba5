"""Arguments of torchtitan for a planned job."""

from __future__ import annotations

from syncline.errors import PlanError
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import stage_layout

#: Configurations that torchtitan 0.3 ships, by the model they are of: module, size, and one for each precision.
FLAVOURS: dict[str, tuple[str, str, dict[str, str]]] = {
    "llama3-8b": ("llama3", "8B", {"bf16": "llama3_8b"}),
    "llama3-70b": ("llama3", "70B", {"bf16": "llama3_70b"}),
    "llama3-405b": ("llama3", "405B", {"fp8": "llama3_405b"}),
    "qwen3-14b": ("qwen3", "14B", {"bf16": "qwen3_14b"}),
    "qwen3-32b": ("qwen3", "32B", {"bf16": "qwen3_32b"}),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B", {"bf16": "qwen3_30b_a3b"}),
    "deepseek-v3": ("deepseek_v3", "671B", {"bf16": "deepseek_v3_671b", "fp8": "deepseek_v3_671b_float8"}),
}
WRITTEN = "planned_model"
"""The module that is written where torchtitan ships the model in the other precision alone."""
_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
_RECOMPUTE = {"none": "none", "selective-op": "selective", "full": "full"}


def torchtitan_arguments(job: Job, shape: Shape) -> list[str]:
    """Return the options of `torchtitan.train`; pipelines name the modules of every chunk."""
    if shape.name not in FLAVOURS:
        raise PlanError(
            f"torchtitan ships no configuration of {shape.name}.",
            detail=f"It has {', '.join(FLAVOURS)}.",
            hint="Plan one of those, or plan for megatron.",
        )
    module, _, configs = FLAVOURS[shape.name]
    if job.precision not in ("bf16", "fp8"):
        raise PlanError(
            f"torchtitan trains {shape.name} in bf16 or fp8, not in {job.precision}.", hint="Set `precision: bf16`."
        )
    config = configs.get(job.precision, "")
    if not config:
        module, config = WRITTEN, "planned"
    values = torchtitan_values(job, shape)
    found = ["--module", module, "--config", config]
    found += [text for name, value in values.items() for text in (f"--{name}", str(value))]
    if facts_of(job).compiled:
        found.append("--compile.enable")
    if job.parallel.pp > 1 or job.parallel.ep > 1:  # trainer.py, _validate_cuda_graphs: on by default, neither is taken
        found.append("--training.disable_cuda_graphs")
    # A policy is a subcommand of the option parser, so it comes last.
    return [*found, f"activation-checkpoint:{_RECOMPUTE[job.recompute]}"]


def torchtitan_module(job: Job, shape: Shape) -> str:
    """Return a config registry of the model in the planned precision; nothing where torchtitan ships one."""
    module, size, configs = FLAVOURS[shape.name]
    if job.precision in configs:
        return ""
    shipped = next(iter(configs.values()))
    given, imports = "", ""
    if job.precision == "fp8":
        kinds = ["Float8LinearConverter"] + ["Float8GroupedExpertsConverter"] * (shape.moe is not None)
        skips = ["lm_head", "router.gate"] if shape.moe else ["lm_head"]
        how = f"model_compile_enabled={facts_of(job).compiled}"
        made = [f"{kinds[0]}.Config(filter_fqns={skips}, {how})", *(f"{kind}.Config({how})" for kind in kinds[1:])]
        imports = f"from torchtitan.components.quantization import {', '.join(kinds)}\n"
        given = f", converters=[{', '.join(made)}]"
    lines = [f'"""{shape.name} in {job.precision}; torchtitan ships `{shipped}` in the other precision alone."""\n\n']
    if job.precision == "bf16":  # llama3_405b() itself wants a GPU that has float8, so its smaller sibling is the base
        imports, shipped = "from torchtitan.components.optimizer import default_adamw\n", "llama3_70b"
    lines += [imports, f"from torchtitan.models.{module} import config_registry, model_registry\n\n\n"]
    lines += ["def planned():\n", f"    config = config_registry.{shipped}()\n"]
    lines += [f'    config.model_spec = model_registry("{size}"{given})\n']
    if job.precision == "bf16":  # as llama3_405b() has them
        lines += ['    config.hf_assets_path = "./assets/hf/Llama-3.1-405B"\n']
        lines += ["    config.optimizer = default_adamw(lr=8e-5)\n"]
    return "".join([*lines, "    return config\n"])


def torchtitan_values(job: Job, shape: Shape) -> dict[str, object]:
    """Return the numbers of `training` and `parallelism` by their dotted names."""
    split, dp = job.parallel, job.parallel.dp or 1
    shard = dp if split.zero != "hsdp" else max(split.shard_ranks // split.cp, 1)
    pipeline = split.pp > 1
    values: dict[str, object] = {
        "training.local_batch_size": job.batch.micro * (job.num_micro if pipeline else 1),
        "training.global_batch_size": job.batch.global_,
        "training.seq_len": job.batch.sequence,
        "parallelism.data_parallel_replicate_degree": dp // shard,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.tensor_parallel_degree": split.tp,
        "parallelism.context_parallel_degree": split.cp,
        "parallelism.pipeline_parallel_degree": split.pp,
        "parallelism.expert_parallel_degree": split.ep,
    }
    if pipeline:
        laid = stage_layout(shape.layers, split.pp, split.virtual)
        values["parallelism.pipeline_parallel_schedule"] = _SCHEDULES[split.schedule]
        values["parallelism.pipeline_parallel_microbatch_size"] = job.batch.micro
        values["parallelism.pipeline_parallel_layers_per_stage"] = max(max(chunks) for chunks in laid)
        ends = int(shape.layers % (split.pp * split.virtual) != 0 and laid[0][0] < max(laid[1 % split.pp]))
        values["parallelism.pipeline_parallel_first_stage_less_layers"] = ends
        values["parallelism.pipeline_parallel_last_stage_less_layers"] = ends
    else:
        reshard = facts_of(job).reshard
        values["parallelism.fsdp_reshard_after_forward"] = "always" if reshard else "never"
    return values
