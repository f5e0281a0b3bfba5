"""Files start the planned model: every field reaches every framework, or the framework is refused by name."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncline.errors import DescriptionError, PlanError
from syncline.planning.frameworks.fields import fields_of
from syncline.planning.frameworks.framework import FRAMEWORKS, named_framework
from syncline.planning.frameworks.launch import environment_of, launch_files
from syncline.planning.frameworks.launch_deepspeed import deepspeed_config, transformers_config, transformers_kind
from syncline.planning.frameworks.launch_megatron import megatron_arguments
from syncline.planning.frameworks.launch_nemo import nemo_overrides, nemo_script
from syncline.planning.frameworks.launch_torch import TITAN, torchtitan_module, torchtitan_values
from syncline.workload.family.config import shape_from_config
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.zoo import shapes, transformer

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "framework_arguments.json").read_text())
#: The numbers of published config.json files that the catalogue has as named models.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"},
    },
    "qwen3-32b": {
        "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": None, "tie_word_embeddings": False,
    },
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 94,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536, "norm_topk_prob": True, "router_aux_loss_coef": 0.001,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
        "sliding_window": None,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "rms_norm_eps": 1e-6,
        "rope_theta": 10000, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "n_shared_experts": 1, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 2.5, "aux_loss_alpha": 0.0001,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                         "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "rms_norm_eps": 1e-5,
        "rope_theta": 150000, "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
        "attention_bias": True, "swiglu_limit": 7.0, "router_aux_loss_coef": 0.9,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
                         "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    },
}  # fmt: skip
#: Models that the catalogue has not, small enough to build, by what their files alone say.
OTHERS: dict[str, dict[str, Any]] = {
    "gemma2": {
        "model_type": "gemma2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 16,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "phi": {
        "model_type": "phi", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 512,
        "num_attention_heads": 4, "partial_rotary_factor": 0.5, "resid_pdrop": 0.1, "hidden_act": "gelu_new",
    },
    "olmo2": {
        "model_type": "olmo2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 512,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 500000, "rms_norm_eps": 1e-6,
    },
    "starcoder2": {
        "model_type": "starcoder2", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4,
        "vocab_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "residual_dropout": 0.1,
    },
    "gpt_neox": {
        "model_type": "gpt_neox", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4,
        "vocab_size": 512, "num_attention_heads": 4, "rotary_pct": 0.25, "tie_word_embeddings": False,
    },
    "olmoe": {
        "model_type": "olmoe", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 4, "vocab_size": 512,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
    },
}  # fmt: skip


def job_of(shape: Shape | str, **changes: Any) -> Job:
    """Return a job of the model with every axis at 1 but dp, unless changed."""
    model = transformer(shape) if isinstance(shape, str) else shape
    batch = {"global": 512, "sequence": model.positions or 4096}
    described = {"model": model, "batch": batch, "tokens": "1T", "parallel": {"tp": 1}}
    return load_job(described | changes).on(64)


def shallow(name: str) -> Shape:
    """Return a named model with four of its layers, one of them dense where it has dense ones beside experts."""
    shape = transformer(name)
    moe = shape.moe and shape.moe.model_copy(update={"dense_layers": min(shape.moe.dense_layers, 1)})
    sinks = {"extra_params": 4 * shape.extra_params // shape.layers}
    return shape.model_copy(update={"layers": 4, "moe": moe, **sinks})


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_models_have_the_fields_of_their_published_files(name: str) -> None:
    read, named = (fields_of(shape) for shape in (shape_from_config(PUBLISHED[name], name), transformer(name)))
    assert {key: (read[key], named[key]) for key in named if read[key] != named[key]} == {}


@pytest.mark.parametrize("name", shapes())
def test_a_written_description_reads_back_as_the_model(name: str) -> None:
    shape = transformer(name)
    written, kind = transformers_config(job_of(shape), shape), transformers_kind(shape)
    if written is None or kind is None:
        assert shape.traits and (shape.traits.alibi or not shape.causal or name in ("palm-540b", "deepseek-v2") or
                                 shape.positions)  # fmt: skip
        return
    back, here = fields_of(shape_from_config(written, name)), fields_of(shape)
    left = {"router_aux_loss"} if any("balancing loss" in text for text in kind.leaves(here)) else set()
    assert {key: (back[key], here[key]) for key in here if back[key] != here[key] and key not in left} == {}


@pytest.mark.parametrize("name", [*PUBLISHED, "llama3-1b", "qwen2.5-7b", "gpt3-125m", "qwen1.5-moe-a2.7b", *OTHERS])
def test_transformers_builds_the_model_of_the_written_file(name: str, tmp_path: Path) -> None:
    """On the meta device: as many parameters as the model has."""
    torch, auto = pytest.importorskip("torch"), pytest.importorskip("transformers")
    shape = shape_from_config(OTHERS[name], name) if name in OTHERS else shallow(name)
    path = tmp_path / "model.json"
    path.write_text(launch_files("deepspeed", job_of(shape), 8)["model.json"])
    with torch.device("meta"):
        model = auto.AutoModelForCausalLM.from_config(auto.AutoConfig.from_pretrained(path))
    assert sum(weight.numel() for weight in model.parameters()) == shape.params


@pytest.mark.parametrize("framework", ["megatron", "nemo", "maxtext", "torchtitan"])
def test_every_argument_is_one_of_the_frameworks_own(framework: str) -> None:
    known, written = set(FIXTURE[framework]["arguments"]), set[str]()
    models = [*shapes().values(), *(shape_from_config(config, name) for name, config in OTHERS.items())]
    for shape in models:
        for split in ({"tp": 2, "pp": 2}, {"pp": 1}):
            job = job_of(shape, parallel=split, offload="optimizer", recompute="full")
            try:
                written |= _arguments(framework, job, shape)
            except PlanError:
                continue
    assert written and written - known == set()


def _arguments(framework: str, job: Job, shape: Shape) -> set[str]:
    if framework == "megatron":
        return {word for word in megatron_arguments(job, shape) if word.startswith("--")}
    if framework == "nemo":
        return {word.split("=")[0] for word in nemo_overrides(job, shape)}
    if framework == "maxtext":
        return set(yaml.safe_load(launch_files("maxtext", job, 8)["config.yml"]))
    dialect = named_framework("torchtitan").dialect(shape)
    assert dialect is not None
    builder = dialect.name.split()[1]
    words = dialect.arguments(fields_of(shape))
    return {word if "." in word else f"{builder}.{word}" for word in words} | set(torchtitan_values(job, shape))


def test_maxtext_reads_small_numbers_as_numbers() -> None:
    config = yaml.safe_load(launch_files("maxtext", job_of("qwen3-8b"), 8)["config.yml"])
    assert config["normalization_layer_epsilon"] == 1e-6 and config["adam_eps"] == 1e-8


def test_megatron_is_told_what_qwen3_is() -> None:
    words = megatron_arguments(job_of("qwen3-8b"), transformer("qwen3-8b"))
    given = dict(pairwise(words))
    assert "--qk-layernorm" in words and given["--rotary-base"] == "1000000" and given["--norm-epsilon"] == "1e-06"
    assert given["--attention-dropout"] == given["--hidden-dropout"] == "0.0"
    assert given["--train-iters"] == given["--lr-decay-iters"] == str(-(-(10**12) // (512 * 4096)))
    assert given["--lr-warmup-iters"] == "2000" and 2e-4 < float(given["--lr"]) < 8e-4


def test_megatron_routes_as_deepseek_does() -> None:
    text = " ".join(megatron_arguments(job_of("deepseek-v3"), transformer("deepseek-v3")))
    for words in ("--moe-router-score-function sigmoid", "--moe-router-enable-expert-bias", "--moe-router-dtype fp32",
                  "--moe-router-num-groups 8 --moe-router-group-topk 4", "--moe-router-topk-scaling-factor 2.5",
                  "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.0001",
                  "--rope-type yarn --rotary-scaling-factor 40.0 --mscale 1.0 --mscale-all-dim 1.0"):  # fmt: skip
        assert words in text


@pytest.mark.parametrize(
    ("framework", "model", "lacks"),
    [
        ("megatron", "gpt-oss-120b", "yarn scaling of rotary positions"),
        ("megatron", "llama3-1b", "llama3 scaling of rotary positions"),  # a factor of 32, and it knows 8
        ("torchtitan", "mixtral-8x7b", "8 experts"),
        ("maxtext", "llama3-1b", "llama3 scaling"),
        ("nemo", "bloom-176b", "alibi positions"),
        ("megatron", "bert-large", "attention in both directions"),
    ],
)
def test_what_a_framework_cannot_express_is_refused_by_name(framework: str, model: str, lacks: str) -> None:
    with pytest.raises(PlanError, match=f"cannot build {model}: it has no argument for .*{re.escape(lacks)}"):
        launch_files(framework, job_of(model), 8)


def test_a_family_of_which_only_sizes_are_known_is_refused() -> None:
    config = {"model_type": "cohere", "num_hidden_layers": 4}
    with pytest.raises(PlanError, match=r"knows the sizes of model .*, not what its layers compute"):
        launch_files("megatron", job_of(shape_from_config(config)), 8)
    files = launch_files("deepspeed", job_of(shape_from_config(config)), 8)
    assert "model.json" not in files and "# Left to you: the model: transformers has none" in files["run.sbatch"]


def test_what_is_left_to_the_user_is_listed_in_the_files() -> None:
    sizes = Shape(layers=4, hidden=256, heads=4, vocab=512, gated=True)
    files = launch_files("megatron", job_of(sizes, tokens=None), 8)
    for name in ("run.sbatch", "jobset.yaml"):
        assert "# Left to you: the tokenizer, the data and where checkpoints go.\n" in files[name]
        assert "the job does not say its `tokens`" in files[name]
        assert "init_std, norm_eps, rotary are Llama 2's" in files[name]
    assert "--train-iters" not in files["arguments.txt"]
    yaml.safe_load(files["jobset.yaml"])
    text = launch_files("torchtitan", job_of("qwen3-30b-a3b"), 8)["run.sbatch"]
    assert "balancing loss of experts with coefficient 0.001, for which torchtitan has no argument" in text


@pytest.mark.parametrize(("tp", "cp", "set_"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_megatron_wants_one_connection_with_tp_or_cp(tp: int, cp: int, set_: bool) -> None:
    environment = environment_of("megatron", job_of("llama3-8b", parallel={"tp": tp, "cp": cp}))
    assert (environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1") == set_


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("width", [2, 4])
def test_gradients_are_sent_in_the_width_that_is_priced(framework: str, width: int) -> None:
    job, _ = named_framework(framework).stated(job_of("llama3-8b"))
    job = job.model_copy(update={"gradient_bytes": width})
    if width not in named_framework(framework).gradient_bytes:
        with pytest.raises(PlanError, match="sends gradients of 4 bytes, and the job's have 2"):
            launch_files(framework, job, 8)
        return
    files = launch_files(framework, job, 8)
    text = "".join(files.values())
    wide = {
        "megatron": "--grad-reduce-in-bf16" not in text,
        "nemo": "mixed_precision.grad_reduce_in_fp32=true" in text,
        "deepspeed": '"communication_data_type": "fp32"' in text,
        "maxtext": "grad_dtype: float32" in text,
        "torchtitan": True,
    }[framework]
    assert wide == (width == 4)


def test_gradients_are_not_sharded_for_megatron() -> None:
    with pytest.raises(DescriptionError, match="zero: 2 is not one of megatron's, which shards state alone: `zero: 1`"):
        job_of("llama3-8b", parallel={"zero": 2}, software={"framework": "megatron"})


def test_torchtitan_is_priced_with_gradients_of_four_bytes() -> None:
    job, _ = named_framework("torchtitan").stated(job_of("llama3-8b"))
    assert job.gradient_bytes == 4


def test_nemo_names_its_recipe_and_the_kind_of_attention() -> None:
    for model, kind in (("llama3-8b", "GPTModelProvider"), ("deepseek-v3", "MLAModelProvider")):
        files = launch_files("nemo", job_of(model), 8)
        script = files["pretrain.py"]
        assert "config = vanilla_gpt_pretrain_config()" in script and f"config.model = {kind}()" in script
        assert "\n  pretrain.py model." in files["run.sbatch"]
        compile(script, "pretrain.py", "exec")
    half = job_of("llama3-8b", precision="fp32")
    with pytest.raises(PlanError, match="does not train in fp32"):
        nemo_script(half, transformer("llama3-8b"))


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-32b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_torchtitans_module_is_python_of_every_kind(name: str, precision: str) -> None:
    text = torchtitan_module(job_of(name, precision=precision), transformer(name))
    compile(text, "planned_model.py", "exec")
    assert ("Float8" in text) == (precision == "fp8") and f"dim={transformer(name).hidden}," in text
    assert {dialect.name.split()[1] for dialect in TITAN} & set(re.findall(r"_build_\w+_layers", text))


def test_deepspeed_follows_the_runs_schedule() -> None:
    config = json.loads(json.dumps(deepspeed_config(job_of("llama3-8b"), transformer("llama3-8b"))))
    assert config["scheduler"]["params"]["total_num_steps"] == 476838 and config["optimizer"]["params"]["lr"] > 0
