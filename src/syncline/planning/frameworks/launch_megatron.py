"""Arguments of Megatron-LM's pretrain_gpt.py for a planned job."""

from __future__ import annotations

import math
from collections.abc import Mapping

from syncline.planning.frameworks.fields import Arguments, Dialect, Fields, Row, dialect_of, fields_of, flag, when
from syncline.planning.frameworks.updates import BETAS, CLIP, DECAY, EPS, updates_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import stage_layout

_ACTIVATIONS: dict[tuple[object, object], Arguments] = {
    ("silu", True): {"--swiglu": True}, ("quick_gelu", True): {"--quick-geglu": True, "--glu-linear-offset": 1.0},
    ("relu2", False): {"--squared-relu": True}, ("gelu", False): {"--no-bias-gelu-fusion": True},
}  # fmt: skip


def _activation(f: Fields) -> Arguments | None:
    """Return the activation; the tanh form of gelu is what the kernel that adds a bias computes, and no other."""
    if (f["activation"], f["gated"]) == ("gelu_tanh", False):
        return {} if f["bias_ffn"] else None
    return _ACTIVATIONS.get((f["activation"], f["gated"]))


def _positions(f: Fields) -> Arguments | None:
    if f["positions"] == "learned":
        return {"--position-embedding-type": "learned_absolute", "--max-position-embeddings": f["num_positions"]}
    return {"--position-embedding-type": "rope"} if f["positions"] == "rotary" else None


def stretched(f: Fields) -> Arguments | None:
    """Return the stretch of rotary positions: yarn of latent attention, or the one llama3 scaling that it knows."""
    if f["kv_rank"]:
        if f["rope_kind"] == "none":
            return {"--rope-type": "rope"}
        if (f["rope_kind"], f["rope_original"], f["rope_fast"], f["rope_slow"]) != ("yarn", 4096, 32, 1):
            return None
        scale = {"--mscale": f["rope_mscale"] or 1.0, "--mscale-all-dim": f["rope_mscale_all"]}
        return {"--rope-type": "yarn", "--rotary-scaling-factor": f["rope_factor"], **scale}
    llama = ("llama3", 8.0, 8192, 1.0, 4.0)  # gpt_builders.py hands on no other factor
    if (f["rope_kind"], f["rope_factor"], f["rope_original"], f["rope_low"], f["rope_high"]) == llama:
        return {"--use-rope-scaling": True}
    if f["rope_kind"] == "linear" and f["rope_factor"] == round(f["rope_factor"]):
        return {"--rotary-seq-len-interpolation-factor": round(f["rope_factor"])}
    return {} if f["rope_kind"] == "none" else None


def _biases(f: Fields) -> Arguments | None:
    if f["bias_ffn"] != f["bias_out"] or (f["bias_ffn"] and not f["bias_qkv"]):
        return None
    return {} if f["bias_ffn"] else {"--disable-bias-linear": True}


def _score(f: Fields) -> Arguments | None:
    if not f["experts"]:
        return {}
    if f["router_score"] == "softmax":  # before the choice: what the chosen weigh is then not normalised
        return {} if f["router_normalised"] else {"--moe-router-pre-softmax": True}
    return {"--moe-router-score-function": "sigmoid"} if f["router_normalised"] else None


def _balance(f: Fields) -> Arguments:
    if not f["experts"]:
        return {}
    if not f["router_aux_loss"]:
        return {"--moe-router-load-balancing-type": "none"}
    kind = "seq_aux_loss" if f["router_corrected"] else "aux_loss"
    return {"--moe-router-load-balancing-type": kind, "--moe-aux-loss-coeff": f["router_aux_loss"]}


ROWS: Mapping[str, Row] = {
    "layers": "--num-layers", "hidden": "--hidden-size", "ffn": "--ffn-hidden-size", "heads": "--num-attention-heads",
    "kv_heads": lambda f: {"--group-query-attention": True, "--num-query-groups": f["kv_heads"]}
    if f["kv_heads"] != f["heads"] else {},
    "head_size": lambda f: {} if f["kv_rank"] else {"--kv-channels": f["head_size"]}, "vocab": "--vocab-size",
    "tied": lambda f: {} if f["tied"] else {"--untie-embeddings-and-output-weights": True},
    "norm": lambda f: {"rms": {"--normalization": "RMSNorm"}, "layer": {"--normalization": "LayerNorm"}}.get(
        str(f["norm"])), "norm_eps": "--norm-epsilon",
    "norm_offset": when("norm_offset", **{"--apply-layernorm-1p": True}),
    # The latent of queries and keys is normalised wherever there is one.
    "qk_norm": lambda f: {"--qk-layernorm": True} if f["qk_norm"] == "head" or f["kv_rank"]
    else None if f["qk_norm"] else {},
    "bias_ffn": _biases, "bias_out": _biases,
    "bias_qkv": lambda f: {"--add-qkv-bias": True} if f["bias_qkv"] and not f["bias_ffn"] else {},
    "gated": lambda f: {}, "activation": _activation,
    "activation_limit": flag("activation_limit", "--activation-func-clamp-value"),
    "positions": _positions,
    "rope_base": lambda f: {"--rotary-base": round(f["rope_base"])} if f["positions"] == "rotary" else {},
    "rope_share": lambda f: {"--rotary-percent": f["rope_share"]} if f["rope_share"] != 1 else {},
    "rope_kind": stretched, "rope_factor": lambda f: {}, "rope_original": lambda f: {},
    "rope_skip": flag("rope_skip", "--no-rope-freq"),
    # Megatron counts the tokens before a query, config.json the query too.
    "window": lambda f: {"--window-size": f"{f['window'] - 1},0"} if f["window"] else {},
    "full_every": lambda f: None if f["full_every"] < 0 else flag("full_every", "--window-attn-skip-freq")(f),
    "sinks": when("sinks", **{"--softmax-type": "learnable"}),
    "attention_dropout": "--attention-dropout", "hidden_dropout": "--hidden-dropout", "init_std": "--init-method-std",
    "kv_rank": lambda f: {
        "--multi-latent-attention": True, "--kv-lora-rank": f["kv_rank"], "--qk-head-dim": f["nope_size"],
        "--qk-pos-emb-head-dim": f["rope_size"], "--v-head-dim": f["value_size"],
    } if f["kv_rank"] else {}, "q_rank": flag("q_rank", "--q-lora-rank"),
    "experts": lambda f: {
        "--num-experts": f["experts"], "--moe-router-topk": f["top_k"], "--moe-ffn-hidden-size": f["expert_ffn"],
        "--moe-token-dispatcher-type": "alltoall", "--moe-grouped-gemm": True, "--moe-router-dtype": "fp32",
    } if f["experts"] else {}, "latent": flag("latent", "--moe-latent-size"),
    "shared_ffn": flag("shared_ffn", "--moe-shared-expert-intermediate-size"),
    "shared_gate": when("shared_gate", **{"--moe-shared-expert-gate": True}),
    "dense_layers": lambda f: {
        "--moe-layer-freq": f"([0]*{f['dense_layers']}+[1]*{f['layers'] - f['dense_layers']})"
    } if f["dense_layers"] else {},
    "router_score": _score, "router_normalised": lambda f: {},
    "router_groups": lambda f: {
        "--moe-router-num-groups": f["router_groups"], "--moe-router-group-topk": f["router_top_groups"],
    } if f["router_groups"] else {},
    "router_scale": lambda f: {"--moe-router-topk-scaling-factor": f["router_scale"]} if f["router_scale"] != 1 else {},
    "router_corrected": when("router_corrected", **{"--moe-router-enable-expert-bias": True}),
    "router_biased": lambda f: {} if f["router_biased"] == (f["bias_ffn"] and f["experts"] > 0) else None,
    "router_aux_loss": _balance, "predict_layers": flag("predict_layers", "--mtp-num-layers"),
}  # fmt: skip
MEGATRON = Dialect("megatron", ROWS, {})


def megatron_arguments(job: Job, shape: Shape) -> list[str]:
    """Return the flags of pretrain_gpt.py: model, split, batch, precision, memory and schedule."""
    return words_of(flags_of(job, shape, dialect_of("Megatron-LM", [MEGATRON], shape)))


def flags_of(job: Job, shape: Shape, dialect: Dialect) -> dict[str, object]:
    """Return every flag with its value; None and False stand for one that is left out."""
    model = dialect.arguments(fields_of(shape))
    return {
        **model, "--max-position-embeddings": model.get("--max-position-embeddings", job.batch.sequence),
        **_vocabulary(shape.vocab, job.parallel.tp), **_batch(job), **_split(job, shape), **_memory(job, shape),
        **_schedule(job, shape),
    }  # fmt: skip


def words_of(flags: Arguments) -> list[str]:
    """Return flags as words: True stands for a flag without a value, False and None for one that is left out."""
    given = {name: value for name, value in flags.items() if value is not None and value is not False}
    return [word for name, value in given.items() for word in ((name,) if value is True else (name, str(value)))]


def _vocabulary(vocab: int, tp: int) -> Arguments:
    """Return what the vocabulary is padded to: nothing where its parts divide by the 8 that tensor cores want."""
    return {} if vocab % (8 * tp) else {"--make-vocab-size-divisible-by": math.gcd(128, vocab // tp)}


def _batch(job: Job) -> Arguments:
    return {
        "--seq-length": job.batch.sequence, "--micro-batch-size": job.batch.micro,
        "--global-batch-size": job.batch.global_, "--bf16": job.precision in ("bf16", "fp8"),
        "--fp16": job.precision == "fp16", "--fp8-format": "hybrid" if job.precision == "fp8" else None,
    }  # fmt: skip


def _schedule(job: Job, shape: Shape) -> Arguments:
    updates = updates_of(job, shape)
    known: Arguments = {} if updates.iterations is None else {
        "--train-iters": updates.iterations, "--lr-decay-iters": updates.iterations,
        "--lr-warmup-iters": updates.warmup, "--lr": updates.peak, "--min-lr": updates.least,
    }  # fmt: skip
    return {
        **known, "--lr-decay-style": "cosine", "--adam-beta1": BETAS[0], "--adam-beta2": BETAS[1], "--adam-eps": EPS,
        "--weight-decay": DECAY, "--clip-grad": CLIP,
    }  # fmt: skip


def _split(job: Job, shape: Shape) -> Arguments:
    split, facts = job.parallel, facts_of(job)
    spread = split.ep > 1
    return {
        "--tensor-model-parallel-size": split.tp, "--pipeline-model-parallel-size": split.pp,
        "--context-parallel-size": split.cp, "--expert-model-parallel-size": split.ep if spread else None,
        "--expert-tensor-parallel-size": 1 if spread else None,
        **(_stages(shape, split.pp, split.virtual) if split.pp > 1 else {}),
        "--sequence-parallel": facts.sequence_parallel and split.tp > 1,
        "--tp-comm-overlap": facts.tp_overlap and split.tp > 1, "--use-distributed-optimizer": split.sharded_state,
        "--overlap-grad-reduce": facts.dp_overlap, "--overlap-param-gather": facts.dp_overlap and split.sharded_state,
    }  # fmt: skip


def _stages(shape: Shape, pp: int, virtual: int) -> Arguments:
    """Return the cut: layers of a virtual stage where it is even, else the whole layout written out."""
    if shape.layers % (pp * virtual) == 0:
        each = shape.layers // (pp * virtual)
        return {"--num-layers-per-virtual-pipeline-stage": each if virtual > 1 else None}
    return {"--pipeline-model-parallel-layout": layout_text(shape.layers, pp, virtual, shape.head_layers)}


def layout_text(layers: int, pp: int, virtual: int, head: float = 1.0) -> str:
    """Return Megatron's layout: E embedding, t a layer, L the loss; stages in the order of the model, with bars."""
    laid = stage_layout(layers, pp, virtual, head)
    parts = ["t" * laid[stage][chunk] for chunk in range(virtual) for stage in range(pp)]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "L"
    return "|".join(parts)


def _memory(job: Job, shape: Shape) -> Arguments:
    split, method, layers = job.parallel, None, None
    if job.recompute == "full":
        method, layers = "uniform", 1
    elif job.recompute.startswith("partial-"):
        share = int(job.recompute.removeprefix("partial-")) / 100
        method, layers = "block", max(1, round(share * shape.layers / split.pp / split.virtual))
    offloaded = job.offload in ("optimizer", "both")
    return {
        "--grad-reduce-in-bf16": facts_of(job).gradient_bytes == 2 and job.precision != "fp16",
        "--recompute-granularity": "full" if method else "selective" if job.recompute == "selective" else None,
        "--recompute-method": method, "--recompute-num-layers": layers, "--optimizer-cpu-offload": offloaded,
        "--use-precision-aware-optimizer": offloaded,
    }  # fmt: skip
