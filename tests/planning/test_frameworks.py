"""Plans for a framework: its rules in the search, its files, and the checks of the frameworks themselves."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from syncline.describe.plain import plain
from syncline.errors import PlanError
from syncline.fabric import load
from syncline.planning.answer import ask
from syncline.planning.frameworks.framework import FRAMEWORKS, named_framework
from syncline.planning.frameworks.launch import environment_of, launch_files
from syncline.planning.frameworks.launch_deepspeed import deepspeed_config
from syncline.planning.frameworks.launch_maxtext import maxtext_config, mesh_of
from syncline.planning.frameworks.launch_megatron import layout_text, megatron_arguments
from syncline.planning.frameworks.launch_torch import torchtitan_arguments, torchtitan_values
from syncline.planning.named_job import named_job
from syncline.planning.search import search
from syncline.planning.space import USUAL, rows_of
from syncline.workload.job import Job
from syncline.workload.shape import Mixer, Shape
from syncline.workload.zoo import transformer

FABRIC = load("h100-64-rail")


@pytest.fixture(scope="module")
def planned() -> dict[str, Job]:
    """The best job of every framework, on 64 GPUs."""
    found = {}
    for name, framework in FRAMEWORKS.items():
        job = named_job("llama3-70b")
        model = transformer("llama3-8b") if name == "deepspeed" else job.model
        batch = job.batch.model_copy(update={"global_": 256})
        job = job.model_copy(update={"gpus": 64, "batch": batch, "model": model})
        question, gpus = ask(FABRIC, job)
        asked = type(question)(job, question.machine, question.reach, question.constants, 0.0, name)
        best = search(asked, gpus, axes=framework.axes(USUAL), keep=1).best
        found[name] = best[0].decision.job(job, question.machine.domain)
    return found


def test_no_plan_splits_kv_heads() -> None:
    rows = rows_of(named_job("llama3-70b"), 512, 64)
    assert rows.tp.max() == 8  # 8 KV heads, whatever the 64 heads and the domain would allow


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_files_start_the_job(planned: dict[str, Job], name: str) -> None:
    job = planned[name]
    files = launch_files(name, job, 8)
    assert "--nodes=8" in files["run.sbatch"]
    assert ("--nproc-per-node=8" in files["run.sbatch"]) == (name != "maxtext"), "JAX joins one process a host"
    spec = yaml.safe_load(files["jobset.yaml"])["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["completions"] == 8
    ranks = json.loads(files["ranks.json"])
    assert ranks["ranks"] == 64 and sum(map(sum, ranks["layers_of_stages"])) == job.model.layers


def test_maxtext_is_started_as_jax_joins_hosts(planned: dict[str, Job], tmp_path: Path) -> None:
    """The script itself, with stand-ins for Slurm's commands and for the interpreter."""
    said = "echo $JAX_COORDINATOR_IP:$JAX_COORDINATOR_PORT $NODE_RANK of $NNODES: $@"
    for name, text in {"scontrol": "echo a; echo b", "srun": 'SLURM_NODEID=1 exec "$@"', "python3": said}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = launch_files("maxtext", planned["maxtext"], 8)["run.sbatch"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "a,b"}
    done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "a:29500 1 of 8: -m maxtext.trainers.pre_train.train config.yml\n"


def test_unknown_frameworks_and_models_are_named() -> None:
    with pytest.raises(PlanError, match='`framework` "colossal"'):
        named_framework("colossal")
    job = named_job("gpt3-175b").on(1024)
    with pytest.raises(PlanError, match="torchtitan cannot build gpt3-175b: it has no argument for layer"):
        launch_files("torchtitan", job, 8)


def test_deepspeed_cannot_split_a_model() -> None:
    rows = named_framework("deepspeed").keep(rows_of(named_job("llama3-70b"), 64, 8), named_job("llama3-70b"))
    assert np.all(rows.tp * rows.pp * rows.cp == 1)


def test_layout_of_layers_that_do_not_divide() -> None:
    text = layout_text(61, 16, 1)
    parts = text.split("|")
    assert len(parts) == 16 and text.count("t") == 61 and parts[0] == "Ettt" and parts[-1] == "tttL"


def _megatron_config(job: Job) -> Any:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    shape = job.model
    assert isinstance(shape, Shape)
    flags = megatron_arguments(job, shape)

    def value(name: str) -> str | None:
        return flags[flags.index(name) + 1] if name in flags else None

    per_chunk = value("--num-layers-per-virtual-pipeline-stage")
    pp = int(value("--pipeline-model-parallel-size") or 1)
    virtual = shape.layers // pp // int(per_chunk) if per_chunk else None
    return TransformerConfig(
        num_layers=int(value("--num-layers") or 0),
        hidden_size=int(value("--hidden-size") or 0),
        num_attention_heads=int(value("--num-attention-heads") or 0),
        ffn_hidden_size=int(value("--ffn-hidden-size") or 0),
        num_query_groups=int(value("--num-query-groups") or shape.heads),
        kv_channels=int(value("--kv-channels") or 0),
        tensor_model_parallel_size=int(value("--tensor-model-parallel-size") or 1),
        pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=virtual,
        context_parallel_size=int(value("--context-parallel-size") or 1),
        pipeline_model_parallel_layout=value("--pipeline-model-parallel-layout"),
        sequence_parallel="--sequence-parallel" in flags,
        bf16="--bf16" in flags,
        pipeline_dtype=torch.bfloat16,
        recompute_granularity=value("--recompute-granularity"),
        recompute_method=value("--recompute-method"),
        recompute_num_layers=int(number) if (number := value("--recompute-num-layers")) else None,
        add_bias_linear="--disable-bias-linear" not in flags,
        gated_linear_unit="--swiglu" in flags,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_megatron_core_accepts_the_plan(planned: dict[str, Job]) -> None:
    config = _megatron_config(planned["megatron"])
    assert config.tensor_model_parallel_size == planned["megatron"].parallel.tp


@pytest.mark.parametrize(("layers", "pp", "virtual"), [(61, 16, 1), (126, 16, 8), (126, 16, 1), (80, 8, 5), (9, 2, 1)])
def test_megatron_core_accepts_the_layout(layers: int, pp: int, virtual: int) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    layout = PipelineParallelLayerLayout.from_str(layout_text(layers, pp, virtual), pp)
    layout.validate_layer_layout(num_layers=layers, mtp_num_layers=None)
    assert layout.virtual_pipeline_model_parallel_size == virtual


def test_megatron_core_refuses_what_the_rules_refuse(planned: dict[str, Job]) -> None:
    job = planned["megatron"]
    wrong = job.model_copy(update={"parallel": job.parallel.model_copy(update={"tp": 3})})
    with pytest.raises(ValueError, match="must be a multiple"):
        _megatron_config(wrong)


def test_torchtitan_accepts_the_plan(planned: dict[str, Job]) -> None:
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    configs = pytest.importorskip("torchtitan.config.configs", reason="torchtitan's requirements are not installed")
    dims = pytest.importorskip("torchtitan.distributed.parallel_dims", reason="spmd_types is not installed")
    job = planned["torchtitan"]
    assert isinstance(job.model, Shape)
    values = torchtitan_values(job, job.model)
    parts: dict[str, dict[str, Any]] = {"training": {}, "parallelism": {}}
    for name, value in values.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    training = configs.TrainingConfig(**parts["training"])
    split = configs.ParallelismConfig(**parts["parallelism"])
    dims.ParallelDims(
        dp_replicate=split.data_parallel_replicate_degree, dp_shard=split.data_parallel_shard_degree,
        cp=split.context_parallel_degree, tp=split.tensor_parallel_degree, pp=split.pipeline_parallel_degree,
        ep=split.expert_parallel_degree, world_size=64,
    )  # fmt: skip
    replicas = split.data_parallel_replicate_degree * split.data_parallel_shard_degree
    assert training.global_batch_size % (training.local_batch_size * replicas) == 0


def test_deepspeed_batches_multiply_out(planned: dict[str, Job]) -> None:
    config = plain(deepspeed_config(planned["deepspeed"], transformer("llama3-8b")))
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 64
    assert product == config["train_batch_size"] == 256


def test_the_question_writes_them(tmp_path: Path) -> None:
    from syncline.questions.plan import plan

    answer = plan("h100-64-rail", "llama3-70b", fix="tp=8,pp=4,micro=1,virtual=1", framework="nemo")
    written = answer.write_launch(tmp_path / "start")
    text = (tmp_path / "start" / "arguments.txt").read_text()
    assert "model.tensor_model_parallel_size=8" in text and all(path.exists() for path in written)
    assert "model.seq_length=8192" in text and "dataset.seq_length=8192" in text  # Bridge refuses two that differ


def test_files_are_written_for_layers_of_one_kind_only() -> None:
    mixer = Mixer(kind="mamba2", layers=6, params=1_000_000, width=1024)
    shape = transformer("llama3-8b").model_copy(update={"mixers": (mixer,)})
    with pytest.raises(PlanError, match="Megatron-LM cannot build llama3-8b: it has no argument for mamba2 layers"):
        named_framework("megatron").dialect(shape)
    assert named_framework("deepspeed").dialect(shape) is None


def test_torchtitan_takes_the_words_of_its_own_parser(planned: dict[str, Job]) -> None:
    job = planned["torchtitan"]
    assert isinstance(job.model, Shape)
    piped = job.model_copy(update={"parallel": job.parallel.model_copy(update={"pp": 2}), "recompute": "full"})
    alone = job.model_copy(update={"parallel": job.parallel.model_copy(update={"pp": 1, "ep": 1})})
    words = torchtitan_arguments(piped, job.model)
    assert words[-1] == "activation-checkpoint:full" and "--training.disable_cuda_graphs" in words
    assert "--training.disable_cuda_graphs" not in torchtitan_arguments(alone, job.model)


def test_torchtitan_trains_in_bf16_or_fp8() -> None:
    half = named_job("llama3-70b").model_copy(update={"precision": "fp16", "recompute": "full"}).on(512)
    with pytest.raises(PlanError, match="in bf16 or fp8, not in fp16"):
        launch_files("torchtitan", half, 8)


@pytest.mark.parametrize(("tp", "cp", "ep", "dp"), [(2, 2, 1, 64), (8, 2, 1, 16), (4, 1, 8, 64), (1, 1, 1, 256)])
def test_maxtexts_mesh_multiplies_to_the_hosts_and_leaves_no_axis_open(tp: int, cp: int, ep: int, dp: int) -> None:
    job = named_job("llama3-70b")
    split = job.parallel.model_copy(update={"tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": 1})
    mesh = mesh_of(job.model_copy(update={"parallel": split}), 8)
    inside, across = ([size for axis, size in mesh.items() if axis.startswith(where)] for where in ("ici", "dcn"))
    assert math.prod(inside) == 8 and math.prod(across) == tp * cp * dp // 8 and min(inside + across) == 1
    assert mesh["dcn_data_parallelism"] == 1  # base.yml has -1 there, and one axis at most may be open


def test_a_plan_for_a_framework_is_priced_as_that_framework_runs() -> None:
    job = named_job("llama3-70b")
    for name, word in (("megatron", "megatron"), ("nemo", "nemo"), ("torchtitan", "pytorch"), ("maxtext", "auto")):
        stated, note = named_framework(name).stated(job)
        assert stated.software.framework == word and not note
    told = job.model_copy(update={"software": job.software.model_copy(update={"framework": "deepspeed"})})
    stated, note = named_framework("nemo").stated(told)
    assert stated.software.framework == "nemo" and note.startswith(
        "planned for NeMo (Megatron-Bridge), not for deepspeed"
    )


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("llama3-70b", {"decoder_block: llama2", "base_mlp_dim: 28672", "head_dim: 128", "max_segments_per_seq: 32"}),
        ("qwen3-32b", {"decoder_block: qwen3", "use_qk_norm: true"}),
        ("qwen3-30b-a3b", {"decoder_block: qwen3_moe", "base_mlp_dim: 768", "base_moe_mlp_dim: 768"}),
        ("deepseek-v3", {"decoder_block: deepseek", "base_mlp_dim: 18432", "first_num_dense_layers: 3",
                         "shared_experts: 1", "attention_type: mla", "kv_lora_rank: 512"}),
    ],
)  # fmt: skip
def test_maxtext_is_told_the_block_that_the_model_has(planned: dict[str, Job], model: str, lines: set[str]) -> None:
    shape = transformer(model)
    assert lines <= set(maxtext_config(planned["maxtext"], shape, 8).splitlines())


def test_only_torch_gets_the_settings_of_torchs_allocator(planned: dict[str, Job]) -> None:
    for name, job in planned.items():
        assert ("PYTORCH_CUDA_ALLOC_CONF" in environment_of(name, job)) == (name != "maxtext")
