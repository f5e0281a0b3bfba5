"""What some families have beside attention and a feed-forward block: parameters that no field of a Shape counts."""

from __future__ import annotations

from syncline.workload.family.keys import Config, kinds, whole


def beside_params(data: Config, family: str, layers: int, hidden: int) -> int:
    """Return the parameters of sparse attention's indexers, or of key heads that only sliding layers have."""
    if family in ("deepseek_v32", "glm_moe_dsa"):
        return _indexed(data, layers) * _indexer(data, hidden)
    if family == "mimo_v2_flash":
        return _sliding_heads(data, hidden)
    return 0


def sliding_layers(data: Config) -> list[bool]:
    """Return which layers see a window only, where the config lists them; no list otherwise."""
    if listed := kinds(data, "layer_types"):
        return ["sliding" in kind for kind in listed]
    pattern = data.get("hybrid_layer_pattern")  # MiMo: 1 where the layer slides
    return [kind == 1 for kind in pattern] if isinstance(pattern, list) else []


def _indexer(data: Config, hidden: int) -> int:
    """Return DeepSeek's lightning indexer: queries from the latent, one key with its norm, a weight a head."""
    heads, size = whole(data, "index_n_heads", otherwise=64), whole(data, "index_head_dim", otherwise=128)
    return whole(data, "q_lora_rank") * heads * size + hidden * (size + heads) + 2 * size


def _indexed(data: Config, layers: int) -> int:
    """Return how many layers choose their own keys; the others take the choice of one before them."""
    if listed := kinds(data, "indexer_types"):
        return listed.count("full")
    every, offset = whole(data, "index_topk_freq", otherwise=1), whole(data, "index_skip_topk_offset", otherwise=2)
    return sum(max(layer - offset + 1, 0) % max(every, 1) == 0 for layer in range(layers))


def _sliding_heads(data: Config, hidden: int) -> int:
    """Return what MiMo's sliding layers have more: twice the key heads unless it says, and a sink a head."""
    keys = whole(data, "num_key_value_heads")
    more = whole(data, "swa_num_key_value_heads", otherwise=2 * keys) - keys
    sizes = whole(data, "head_dim") + whole(data, "v_head_dim")
    return sum(sliding_layers(data)) * (more * sizes * hidden + whole(data, "num_attention_heads"))
