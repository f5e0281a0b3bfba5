"""A Hugging Face `config.json` as a Shape: names differ between families, the numbers are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.describe.document import read_text
from syncline.describe.mistakes import first_mistake
from syncline.errors import DescriptionError
from syncline.workload.family.beside import beside_params, sliding_layers
from syncline.workload.family.defaults import families, traits, with_defaults
from syncline.workload.family.hybrid import hybrid_fields
from syncline.workload.family.keys import EXPERTS, NAMES, TOP_K, Config, first, kinds, whole
from syncline.workload.family.tower import towers_of
from syncline.workload.family.traits import traits_of
from syncline.workload.shape import Experts, Mla, Shape
from syncline.workload.stored import stored_of

#: Parts of a config that hold numbers of the language model: those of multimodal models, and DBRX's.
_INNER = ("text_config", "llm_config", "attn_config", "ffn_config")
#: Every how many layers one has experts.
_SPARSE_STEPS = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period",
                 "moe_layer_interval", "moe_layer_frequency")  # fmt: skip
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def _has(trait: str, family: str) -> bool:
    """Return whether a family has a trait, whatever its sizes (`data/traits.yaml`)."""
    return family in traits()[trait]


def read_config(path: str | Path) -> Shape:
    """Read a config.json; one error names what is missing or an unknown family."""
    text = read_text(Path(path))
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DescriptionError(
            f"not JSON: {error}.", where=str(path), hint="Name a Hugging Face config.json."
        ) from None
    if not isinstance(data, dict):
        raise DescriptionError("a config.json holds one object.", where=str(path))
    beside = Path(path).with_name("hf_quant_config.json")  # NVIDIA's checkpoints say there what weights are kept in
    if "quantization_config" not in data and beside.is_file():
        data |= {"quantization_config": json.loads(read_text(beside)).get("quantization")}
    try:
        return shape_from_config(data, name=Path(path).parent.name or "model")
    except ValidationError as error:
        raise DescriptionError(f"{first_mistake(error)}.", where=str(path)) from None
    except DescriptionError as error:
        error.where = error.where or str(path)
        raise


def shape_from_config(config: Mapping[str, Any], name: str = "model") -> Shape:
    """Return the shape that a config describes; nested `text_config` of multimodal models is read too."""
    flat = dict(config)
    for part in _INNER:
        inner = config.get(part)
        flat |= {key: value for key, value in inner.items() if value != ""} if isinstance(inner, Mapping) else {}
    if config.get("tie_word_embeddings") is not None:  # of the whole model, not of a part of it
        flat["tie_word_embeddings"] = config["tie_word_embeddings"]
    if flat.get("model_type") == "chatglm" and "inner_hidden_size" in flat:
        flat = _first_glm(flat)
    family, outer = str(flat.get("model_type", "")), str(config.get("model_type", ""))
    _refuse_others(flat, outer if _has("refused", outer) else family)
    data = with_defaults(flat, family)
    numbers = _sizes(data, family)
    layers, hidden = numbers["layers"], numbers["hidden"]
    fields: dict[str, Any] = {key: value for key, value in numbers.items() if value is not None}
    fields |= _habits(data, family) | _window(data, family)
    fields["name"] = str(flat.get("_name_or_path") or name) or "model"
    fields["source"] = f"config.json, model_type {outer or 'unknown'}"
    if first(data, ("kv_lora_rank",)) is not None:
        fields["mla"] = _mla(data)
        fields.pop("head_size", None)
        fields.pop("kv_heads", None)
        per_head = whole(data, "hidden_size") // max(whole(data, "num_attention_heads"), 1)
        fields["value_size"] = whole(data, "v_head_dim", otherwise=per_head if family == "minicpm3" else 128)
    dense: int | None = None
    if isinstance(layers, int) and isinstance(hidden, int):
        special = hybrid_fields(data, family, layers, hidden)
        found = special.pop("dense_layers", None)
        dense = found if isinstance(found, int) else None
        fields |= special
        if more := beside_params(data, family, layers, hidden):
            fields["extra_params"] = more
        fields["towers"] = towers_of(config, hidden)
    if (experts := whole(data, *EXPERTS)) > 1 and data.get("enable_moe_block") is not False:
        fields["moe"] = _experts(data, experts, fields["layers"], family, dense)
        fields["extra_params"] = fields.get("extra_params", 0) + _gates(data, fields, family)
    fields["predict_layers"] = whole(data, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    fields["stored"] = stored_of(flat)
    fields["traits"] = traits_of(data, family, "moe" in fields)
    if fields["traits"] and fields["traits"].norm_place == "around":
        fields["norms"] = 4
    return Shape.model_validate(fields)


def _first_glm(data: Config) -> dict[str, Any]:
    """Return ChatGLM of the first generation as what it is: GPT-NeoX's layers, with one table for both ends."""
    names = {"num_layers": "num_hidden_layers", "inner_hidden_size": "intermediate_size"}
    return {names.get(key, key): value for key, value in data.items()} | {
        "model_type": "gpt_neox", "tie_word_embeddings": True,
    }  # fmt: skip


def _sizes(data: Config, family: str) -> dict[str, Any]:
    """Return the sizes of a model under our names, or raise for one that has none."""
    numbers = {ours: first(data, theirs) for ours, theirs in NAMES.items()}
    if numbers["layers"] is None and (listed := kinds(data, "layers_block_type", "layer_types")):
        numbers["layers"] = len(listed)
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        numbers["kv_heads"] = 1
    if numbers["heads"] is None and family in ("mamba", "falcon_mamba", "mamba2", "rwkv"):
        numbers["heads"] = 1  # none attend
    missing = [ours for ours in ("layers", "hidden", "heads", "vocab") if numbers[ours] is None]
    if missing:
        raise DescriptionError(
            f'the config has no "{NAMES[missing[0]][0]}".',
            hint="syncline reads language models; give other models as a list of layers.",
        )
    size = numbers["head_size"]
    if family == "helium" and size and size * numbers["heads"] != numbers["hidden"]:
        raise DescriptionError(
            f"helium's heads must fill its hidden size: {numbers['heads']} x {size} is not {numbers['hidden']}.",
            hint="Correct num_attention_heads, head_dim or hidden_size.",
        )
    if family == "mimo_v2_flash":
        numbers["value_size"] = whole(data, "v_head_dim")
    if family in ("olmo", "hf_olmo") and (wide := whole(data, "mlp_hidden_size")):
        numbers["ffn"] = wide // 2  # gate and up projection in one matrix
    if family == "mamba2":  # one head size for all: that of the state space, which has no keys
        numbers["heads"], numbers["head_size"] = whole(data, "num_heads", otherwise=1), 1
    if family in ("mamba", "falcon_mamba", "rwkv"):
        numbers["head_size"] = 1
    return numbers


def _habits(data: Config, family: str) -> dict[str, Any]:
    """Return what a family does whatever its sizes: biases, gates, normalisation, positions."""
    encoder = _has("encoders", family)
    plain = encoder or _has("plain", family)
    bias = any(data.get(key) for key in ("attention_bias", "use_qkv_bias"))
    bias = bias or bool("attention_bias" not in data and data.get("add_qkv_bias"))
    foundry = family == "mpt" and "MPTForCausalLM" in kinds(data, "architectures")  # transformers has neither of these
    biased = (plain and not _has("without_biases", family)) or (foundry and not data.get("no_bias", False))
    learned = (
        encoder
        or _has("learned_positions", family)
        or (foundry and data.get("learned_pos_emb") is True and not data.get("alibi"))
    )
    narrow = whole(data, "word_embed_proj_dim") if family == "opt" else 0
    hidden, vocab = first(data, NAMES["hidden"]), first(data, NAMES["vocab"])
    fields = {
        "gated": not plain,
        "tied": bool(data.get("tie_word_embeddings", data.get("weight_tying", False))),
        "biases": (biased and bool(data.get("bias", True))) or _has("linear_biases", family),
        "norm_biases": biased,
        "qkv_biases": bias or _has("qkv_biases", family),
        "qk_norm": _has("qk_norm", family),
        "query_gate": _has("query_gate", family),
        "causal": not encoder,
        "positions": whole(data, "max_position_embeddings", "n_positions", "max_seq_len") if learned else 0,
    }
    if narrow and narrow != hidden:
        raise DescriptionError(
            f"{family} has an embedding of {narrow} where its layers have {hidden}, which syncline does not read.",
            hint="Give its shape, with what the projections hold as `extra_params`.",
        )
    if _headless(data, family):  # priced with an output layer all the same: its embedding, once more
        fields["tied"] = True
    if encoder:  # kinds of tokens, and what comes before the output layer
        fields["extra_params"] = hidden * (hidden + 5) + vocab
    if family == "phi":  # one norm before both halves of a layer, and an output layer with a bias
        fields |= {"norms": 1, "extra_params": vocab}
    if family.startswith("mllama"):  # eight more rows than the output layer has
        fields["extra_params"] = 8 * hidden
    return fields


def _headless(data: Config, family: str) -> bool:
    """Return whether the file is of a model without an output layer: one that embeds, classifies or rewards."""
    named = data.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    if family == "chatglm" or name.endswith("LMHeadModel"):  # ChatGLMModel has one
        return False
    return name.endswith(("Model", "ForSequenceClassification", "ForTokenClassification"))


def _refuse_others(data: Config, family: str) -> None:
    """Raise for models that have attention heads and a vocabulary, but that this reader would misread."""
    what = "an encoder and a decoder" if data.get("is_encoder_decoder") else ""
    what = what or (
        "cross-attention in every layer" if data.get("add_cross_attention") else traits()["refused"].get(family, "")
    )
    if what:
        raise DescriptionError(
            f"{family or 'the model'} has {what}, which syncline does not read from a config.",
            hint="Give it as a list of layers, or as the shape of the transformer nearest to it.",
        )
    if "dim" in data and first(data, NAMES["hidden"]) is None:  # a file of its own kind under a family's name
        raise DescriptionError(
            f'the config says "dim" where {family or "a model"} has "{NAMES["hidden"][0]}".',
            hint="Write its sizes under Hugging Face's names, or give its shape.",
        )
    if family and family not in families():
        raise DescriptionError(
            f'"{family}" is not a model_type that syncline knows.',
            hint='Where its layers are like Llama\'s, write `"model_type": "llama"`; otherwise give its shape.',
        )


def _window(data: Config, family: str) -> dict[str, Any]:
    window = whole(data, "sliding_window")
    if not window or data.get("use_sliding_window") is False:
        return {}
    pattern = data.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # EXAONE: a letter a layer, L where it slides, G where it does not
        share = pattern.count("L") / len(pattern)
    else:
        full_every = whole(data, "sliding_window_pattern", otherwise=traits()["full_attention_every"].get(family, 0))
        share = 1 - 1 / full_every if full_every else 1.0
    if listed := sliding_layers(data):
        share = sum(listed) / len(listed)
    return {"window": window, "window_share": share}


def _mla(data: Config) -> Mla:
    return Mla(
        q_rank=whole(data, "q_lora_rank"), kv_rank=whole(data, "kv_lora_rank"),
        rope_size=whole(data, "qk_rope_head_dim", otherwise=64),
        nope_size=whole(data, "qk_nope_head_dim", otherwise=128),
    )  # fmt: skip


def _experts(data: Config, experts: int, layers: int, family: str, dense: int | None) -> Experts:
    width = whole(data, "moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    shared = whole(data, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    shared = shared or whole(data, "shared_intermediate_size")
    if family == "gemma4_text":
        shared = whole(data, "intermediate_size")  # the dense block stays beside the experts
    shared = shared or whole(data, *_SHARED) * width
    if family.startswith("llama4") or (family == "hunyuan_v1_moe" and not shared):
        shared = width  # one expert that every token visits, which the config does not mention
    if family == "arctic":
        shared = whole(data, "hidden_size")  # a dense block of the hidden size beside the experts
    return Experts(
        experts=experts, top_k=whole(data, *TOP_K, otherwise=1), ffn=width, shared_ffn=shared,
        latent=whole(data, "moe_latent_size"),
        dense_layers=_dense_layers(data, layers) if dense is None else dense,
    )  # fmt: skip


def _gates(data: Config, fields: Mapping[str, Any], family: str) -> int:
    """Return what experts have besides: a gate on the shared one (Qwen), sinks and biases of gpt-oss."""
    layers, hidden = fields["layers"], fields["hidden"]
    if family == "gpt_oss":
        return int(layers * (fields["heads"] + whole(data, *EXPERTS)))
    return layers * hidden if whole(data, "shared_expert_intermediate_size") and family.startswith("qwen") else 0


def _dense_layers(data: Config, layers: int) -> int:
    """Return how many layers have no experts: the first ones, those between, and those that are listed."""
    if named := kinds(data, "mlp_layer_types"):
        return named.count("dense")
    every = first(data, _SPARSE_STEPS)
    if isinstance(every, list):  # a 0 or 1 a layer
        return every.count(0)
    step, offset = whole(data, *_SPARSE_STEPS, otherwise=1), data.get("expert_layer_offset")
    listed = data.get("mlp_only_layers")
    dense = {layer for layer in listed if isinstance(layer, int)} if isinstance(listed, list) else set()
    if (last := whole(data, "moe_layer_end_index", otherwise=-1)) >= 0:
        dense |= set(range(last + 1, layers))
    dense |= set(range(whole(data, "first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")))
    place = offset if isinstance(offset, int) else step - 1
    dense |= {layer for layer in range(layers) if step > 1 and layer % step != place}
    return len(dense)
