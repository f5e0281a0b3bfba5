"""Numbers of a config under the names that families give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.errors import DescriptionError

Config = Mapping[str, Any]

#: Our name of a size, and what families call it.
NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"),
    "head_size": ("head_dim", "attention_head_dim", "kv_channels"),
    "ffn": ("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim"),
    "vocab": ("padded_vocab_size", "embedding_size", "vocab_size"),
}
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts")


def first(data: Config, names: tuple[str, ...]) -> Any:
    """Return the first of these keys that is there."""
    return next((data[name] for name in names if data.get(name) is not None), None)


def whole(data: Config, *names: str, otherwise: int = 0) -> int:
    """Return the first of these keys that is there as a whole number."""
    value = first(data, names)
    if value is None:
        return otherwise
    if isinstance(value, list) and len(set(map(str, value))) == 1:  # one number a layer, all the same
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int):
        name = next(name for name in names if data.get(name) is not None)
        raise DescriptionError(f'"{name}" is {value!r}; it must be a whole number.', hint="Correct the config.json.")
    return value


def kinds(data: Config, *names: str) -> list[str]:
    """Return the first of these keys that lists what each layer is."""
    value = first(data, names)
    return [str(kind) for kind in value] if isinstance(value, list) else []
