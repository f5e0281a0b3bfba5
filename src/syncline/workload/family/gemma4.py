"""Gemma 4: layers of full attention have larger heads, fewer of them for keys, and keys that are the values too."""

from __future__ import annotations

from syncline.errors import DescriptionError
from syncline.workload.family.keys import Config, kinds, whole


def gemma4_fields(data: Config, layers: int, hidden: int) -> dict[str, object]:
    """Return the fields of a Shape as its sliding layers are, with what the others have more as extra parameters."""
    if whole(data, "num_kv_shared_layers") or whole(data, "hidden_size_per_layer_input"):
        raise DescriptionError(
            "this Gemma 4 has embeddings in every layer, and keys that layers share, which syncline does not read "
            "from a config.",
            hint="Give it as the shape of the transformer nearest to it.",
        )
    listed = kinds(data, "layer_types") or ["full" if i % 6 == 5 else "sliding" for i in range(layers)]
    full = sum("full" in kind for kind in listed)
    extra = full * _full_attention(data, hidden)
    if data.get("enable_moe_block"):  # three more norms, and the router's scales
        extra += layers * (4 * hidden + whole(data, "num_experts"))
    return {"norms": 4, "qk_norm": True, "extra_params": max(extra, 0)}


def _full_attention(data: Config, hidden: int) -> int:
    """Return how many parameters a layer of full attention has more than one that slides."""
    heads, keys, size = (whole(data, key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    listed = data.get("per_layer_config")  # what differs, a layer: newer files have it in place of `global_`
    other = next((each for each in listed.values() if isinstance(each, dict)), {}) if isinstance(listed, dict) else {}
    large = whole({**data, **other} if other else {"head_dim": data.get("global_head_dim")}, "head_dim", otherwise=512)
    alone = bool(data.get("attention_k_eq_v"))
    shared = whole(data, "num_global_key_value_heads", otherwise=whole(other, "num_key_value_heads", otherwise=keys))
    shared = shared if alone or other else keys
    width = 2 * heads * (large - size) + shared * large * (1 if alone else 2) - 2 * keys * size
    return width * hidden + 2 * (large - size)
