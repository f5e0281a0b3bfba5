"""A Hugging Face `config.json` as a Shape: names differ between families, the numbers are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.describe.document import read_text
from syncline.errors import DescriptionError
from syncline.workload.shape import Experts, Mla, Shape

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"),
    "head_size": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
}
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
#: Parts of a config that hold numbers of the language model: those of multimodal models, and DBRX's.
_INNER = ("text_config", "attn_config", "ffn_config")
#: Every how many layers one has experts.
_SPARSE_STEPS = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step")
#: Keys of models whose layers are not all attention: state spaces, linear attention, recurrences.
_HYBRID = (
    "attn_layer_period",
    "attn_type_list",
    "linear_attn_config",
    "ssm_cfg",
    "state_size",
    "conv_L_cache",
    "mamba_d_state",
    "hybrid_override_pattern",
    "linear_num_value_heads",
    "block_types",
)
#: Families that this reader would take for plain transformers, and what they are instead.
_REFUSED = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "codestral_mamba"), "state-space layers"),
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "rwkv7", "rwkv6qwen2", "retnet", "xlstm"), "recurrent layers"),
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm2_vl"), "convolution layers between those of attention"),
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), "linear attention in most layers"),
    **dict.fromkeys(("kimi_linear", "qwen3_next", "qwen3_5", "qwen3_5_moe"), "linear attention in most layers"),
    **dict.fromkeys(("jamba", "zamba", "zamba2", "bamba", "nemotron_h", "granitemoehybrid", "falcon_h1", "plamo2"),
                    "state-space and attention layers"),
    **dict.fromkeys(("recurrent_gemma", "griffin"), "recurrent layers"),
    "arctic": "a dense and an expert block in one layer",
    **dict.fromkeys(("mllama", "mllama_text_model"), "cross-attention layers for images"),
    **dict.fromkeys(("clip", "siglip", "siglip2", "align", "chinese_clip"), "a text and an image tower"),
    **dict.fromkeys(("vit", "dinov2", "swin", "beit", "deit"), "an image tower and no vocabulary"),
}  # fmt: skip
#: Families with plain two-matrix feed-forward blocks, biases and normalisation with biases.
_PLAIN = {
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "bert",
    "roberta",
    "gpt_bigcode",
    "falcon",
    "mpt",
    "starcoder2",
    "phi",
    "nemotron",
}
#: Of those, the ones without biases.
_NO_BIASES = {"mpt", "nemotron"}
_LEARNED = {"gpt2", "gpt_neo", "opt", "bert", "roberta", "gpt_bigcode"}
_TIED = {"gpt2", "gpt_neo", "opt", "bloom", "bert", "roberta", "gpt_bigcode", "mpt", "gemma", "gemma2", "gemma3",
         "gemma3_text", "falcon", "starcoder2", "cohere", "cohere2", "aya_vision"}  # fmt: skip
_QKV_BIAS = {"qwen2", "qwen2_moe"}
#: Families in which one layer in so many has full attention, where the config does not list the layers.
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}


def read_config(path: str | Path) -> Shape:
    """Read a config.json; what is missing or of an unknown family is said in one error."""
    text = read_text(Path(path))
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DescriptionError(
            f"not JSON: {error}.", where=str(path), hint="Name a Hugging Face config.json."
        ) from None
    if not isinstance(data, dict):
        raise DescriptionError("a config.json holds one object.", where=str(path))
    try:
        return shape_from_config(data, name=Path(path).parent.name or "model")
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise DescriptionError(f"{field}: {first['msg']}.", where=str(path)) from None
    except DescriptionError as error:
        error.where = error.where or str(path)
        raise


def shape_from_config(config: Mapping[str, Any], name: str = "model") -> Shape:
    """Return the shape that a config describes; nested `text_config` of multimodal models is read too."""
    data = dict(config)
    for part in _INNER:
        inner = config.get(part)
        data |= inner if isinstance(inner, Mapping) else {}
    family = str(data.get("model_type", ""))
    whole = str(config.get("model_type", ""))
    _refuse_others(data, whole if whole in _REFUSED else family)
    numbers = {ours: _first(data, theirs) for ours, theirs in _NAMES.items()}
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        numbers["kv_heads"] = 1
    missing = [ours for ours in ("layers", "hidden", "heads", "vocab") if numbers[ours] is None]
    if missing:
        raise DescriptionError(
            f'the config has no "{_NAMES[missing[0]][0]}".',
            hint="syncline reads language models; give other models as a list of layers.",
        )
    if family in ("olmo", "hf_olmo") and (wide := _whole(data, "mlp_hidden_size")):
        numbers["ffn"] = wide // 2  # gate and up projection in one matrix
    plain = family in _PLAIN
    fields: dict[str, Any] = {key: value for key, value in numbers.items() if value is not None}
    tied = bool(data.get("tie_word_embeddings", family in _TIED))
    bias = bool(data.get("attention_bias", data.get("add_qkv_bias", False)))
    biased = plain and family not in _NO_BIASES
    fields |= {
        "name": str(data.get("_name_or_path") or name) or "model",
        "gated": not plain,
        "tied": tied,
        "biases": biased and bool(data.get("bias", True)),
        "norm_biases": biased,
        "qkv_biases": family in _QKV_BIAS or bias,
        "qk_norm": family in ("qwen3", "qwen3_moe"),
        "causal": family not in ("bert", "roberta"),
        "positions": _whole(data, "max_position_embeddings", "n_positions") if family in _LEARNED else 0,
        "source": f"config.json, model_type {family or 'unknown'}",
    }
    fields |= _window(data, family)
    if _first(data, ("kv_lora_rank",)) is not None:
        fields["mla"] = _mla(data)
        fields.pop("head_size", None)
        fields.pop("kv_heads", None)
        fields["value_size"] = _whole(data, "v_head_dim", otherwise=128)
    if (experts := _whole(data, *_EXPERTS)) > 1:
        fields["moe"] = _experts(data, experts, _whole(data, *_NAMES["layers"]), family)
    return Shape.model_validate(fields)


def _refuse_others(data: Mapping[str, Any], family: str) -> None:
    """Raise for models that have attention heads and a vocabulary, but are not one stack of attention layers."""
    what = "an encoder and a decoder" if data.get("is_encoder_decoder") else ""
    what = what or _REFUSED.get(family, "")
    what = what or ("layers that are not attention" if any(data.get(key) for key in _HYBRID) else "")
    what = what or ("blocks that differ from layer to layer" if data.get("block_configs") else "")
    if what:
        raise DescriptionError(
            f"{family or 'the model'} has {what}, which syncline does not read from a config.",
            hint="Give it as a list of layers, or as the shape of the transformer nearest to it.",
        )


def _whole(data: Mapping[str, Any], *names: str, otherwise: int = 0) -> int:
    """Return the first of these keys that is there as a whole number."""
    value = _first(data, names)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int):
        name = next(name for name in names if data.get(name) is not None)
        raise DescriptionError(f'"{name}" is {value!r}; it must be a whole number.', hint="Correct the config.json.")
    return value


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _window(data: Mapping[str, Any], family: str) -> dict[str, Any]:
    kinds = data.get("layer_types")
    window = _whole(data, "sliding_window")
    if not window or data.get("use_sliding_window") is False:
        return {}
    full_every = _whole(data, "sliding_window_pattern", otherwise=_FULL_EVERY.get(family, 0))
    share = 1 - 1 / full_every if full_every else 1.0
    if isinstance(kinds, list) and kinds:
        share = sum("sliding" in str(kind) for kind in kinds) / len(kinds)
    return {"window": window, "window_share": share}


def _mla(data: Mapping[str, Any]) -> Mla:
    return Mla(
        q_rank=_whole(data, "q_lora_rank"), kv_rank=_whole(data, "kv_lora_rank"),
        rope_size=_whole(data, "qk_rope_head_dim", otherwise=64),
        nope_size=_whole(data, "qk_nope_head_dim", otherwise=128),
    )  # fmt: skip


def _experts(data: Mapping[str, Any], experts: int, layers: int, family: str) -> Experts:
    width = _whole(data, "moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    shared = _whole(data, "shared_expert_intermediate_size") or _whole(data, "n_shared_experts") * width
    if family.startswith("llama4"):
        shared = width  # one expert that every token visits, which the config does not mention
    return Experts(
        experts=experts, top_k=_whole(data, "num_experts_per_tok", "moe_top_k", "num_experts_per_token", otherwise=1),
        ffn=width, shared_ffn=shared, dense_layers=_dense_layers(data, layers),
    )  # fmt: skip


def _dense_layers(data: Mapping[str, Any], layers: int) -> int:
    """Return how many layers have no experts: the first ones, those between, and those that are listed."""
    step = _whole(data, *_SPARSE_STEPS, otherwise=1)
    listed = data.get("mlp_only_layers")
    dense = {layer for layer in listed if isinstance(layer, int)} if isinstance(listed, list) else set()
    dense |= set(range(_whole(data, "first_k_dense_replace")))
    dense |= {layer for layer in range(layers) if step > 1 and (layer + 1) % step}
    return len(dense)
