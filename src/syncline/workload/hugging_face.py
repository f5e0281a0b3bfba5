"""A Hugging Face `config.json` as a Shape: names differ between families, the numbers are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.errors import DescriptionError
from syncline.fabric.document import read_text
from syncline.workload.shape import Experts, Mla, Shape

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_size": ("head_dim",),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
}
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
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
}
_LEARNED = {"gpt2", "gpt_neo", "opt", "bert", "roberta", "gpt_bigcode"}
_TIED = {"gpt2", "gpt_neo", "opt", "bloom", "bert", "roberta", "gpt_bigcode", "mpt", "gemma", "gemma2", "gemma3"}
_QKV_BIAS = {"qwen2", "qwen2_moe"}


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
    inner = config.get("text_config")
    data: Mapping[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else config
    family = str(data.get("model_type", ""))
    numbers = {ours: _first(data, theirs) for ours, theirs in _NAMES.items()}
    missing = [ours for ours in ("layers", "hidden", "heads", "vocab") if numbers[ours] is None]
    if missing:
        raise DescriptionError(
            f'the config has no "{_NAMES[missing[0]][0]}".',
            hint="syncline reads language models; give other models as a list of layers.",
        )
    plain = family in _PLAIN
    fields: dict[str, Any] = {key: value for key, value in numbers.items() if value is not None}
    tied = bool(data.get("tie_word_embeddings", family in _TIED))
    bias = bool(data.get("attention_bias", False))
    fields |= {
        "name": str(data.get("_name_or_path") or name) or "model",
        "gated": not plain,
        "tied": tied,
        "biases": plain and family != "mpt",
        "norm_biases": plain and family != "mpt",
        "qkv_biases": family in _QKV_BIAS or bias,
        "qk_norm": family in ("qwen3", "qwen3_moe"),
        "causal": family not in ("bert", "roberta"),
        "positions": int(_first(data, ("max_position_embeddings", "n_positions")) or 0) if family in _LEARNED else 0,
        "source": f"config.json, model_type {family or 'unknown'}",
    }
    fields |= _window(data)
    if _first(data, ("kv_lora_rank",)) is not None:
        fields["mla"] = _mla(data)
        fields.pop("head_size", None)
        fields.pop("kv_heads", None)
        fields["value_size"] = int(data.get("v_head_dim", 128))
    if (experts := _first(data, _EXPERTS)) is not None and int(experts) > 1:
        fields["moe"] = _experts(data, int(experts))
    return Shape.model_validate(fields)


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _window(data: Mapping[str, Any]) -> dict[str, Any]:
    kinds = data.get("layer_types")
    window = data.get("sliding_window")
    if not window or data.get("use_sliding_window") is False:
        return {}
    share = 1.0
    if isinstance(kinds, list) and kinds:
        share = sum("sliding" in str(kind) for kind in kinds) / len(kinds)
    return {"window": int(window), "window_share": share}


def _mla(data: Mapping[str, Any]) -> Mla:
    return Mla(
        q_rank=int(data.get("q_lora_rank") or 0), kv_rank=int(data["kv_lora_rank"]),
        rope_size=int(data.get("qk_rope_head_dim", 64)), nope_size=int(data.get("qk_nope_head_dim", 128)),
    )  # fmt: skip


def _experts(data: Mapping[str, Any], experts: int) -> Experts:
    width = int(_first(data, ("moe_intermediate_size", "intermediate_size")) or 0)
    shared = int(data.get("shared_expert_intermediate_size") or 0) or int(data.get("n_shared_experts") or 0) * width
    return Experts(
        experts=experts, top_k=int(_first(data, ("num_experts_per_tok", "moe_top_k", "num_experts_per_token")) or 1),
        ffn=width, shared_ffn=shared, dense_layers=int(data.get("first_k_dense_replace") or 0),
    )  # fmt: skip
