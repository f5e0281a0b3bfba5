"""The network that images pass before the language model: its parameters, with those of what joins the two (`join`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.errors import DescriptionError
from syncline.workload.family.join import JOINS, merger
from syncline.workload.family.keys import Config, whole
from syncline.workload.shape import Tower


def towers_of(config: Config, hidden: int) -> tuple[Tower, ...]:
    """Return the towers of a multimodal config, whose language model has that hidden size."""
    if isinstance(config.get("audio_config"), Mapping) and config["audio_config"]:
        raise DescriptionError(
            f"{config.get('model_type') or 'the model'} has an audio tower, which syncline does not read.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    family = str(config.get("model_type", ""))
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or not vision:
        if named := config.get("mm_vision_tower"):
            raise DescriptionError(
                f"{family or 'the model'} has an image tower whose sizes are in another file ({named}).",
                hint="Take the config of the converted model, which has a `vision_config`, or give the model's shape.",
            )
        return ()
    count = _TOWERS.get(str(vision.get("model_type", ""))) or _TOWERS.get(family)
    if count is None:
        raise DescriptionError(
            f"{family or 'the model'} has an image tower ({vision.get('model_type', 'unnamed')}) that syncline "
            "does not know.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    joined = JOINS.get(family)
    if joined is None:
        raise DescriptionError(
            f"{family or 'the model'} joins its image tower and its language model in a way that syncline does not "
            "know.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    return (Tower(name="vision", params=count(vision, config, hidden) + joined(vision, config, hidden)),)


def layer(width: int, ffn: int, *, biased: bool = True, gated: bool = False, norm_biases: bool = True) -> int:
    """Return the parameters of one layer of an image transformer."""
    attention = 4 * width * (width + biased)
    block = (2 + gated) * width * ffn + ((1 + gated) * ffn + width)
    return attention + block + 2 * width * (1 + norm_biases)


def _patches(v: Config) -> int:
    side = whole(v, "image_size", otherwise=224) // whole(v, "patch_size", otherwise=14)
    return side * side


def _patch(v: Config, width: int, frames: int = 1) -> int:
    return (
        whole(v, "num_channels", "in_channels", otherwise=3)
        * frames
        * whole(v, "patch_size", otherwise=14) ** 2
        * width
    )


def _clip(v: Config, config: Config, hidden: int) -> int:
    width = whole(v, "hidden_size", otherwise=768)
    layers = whole(v, "num_hidden_layers", otherwise=12) * layer(width, whole(v, "intermediate_size", otherwise=3072))
    return _patch(v, width) + (_patches(v) + 2) * width + 4 * width + layers


def _siglip(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=768), whole(v, "intermediate_size", otherwise=3072)
    layers = whole(v, "num_hidden_layers", otherwise=12) * layer(width, ffn)
    # What pools all patches into one: attention with a query of its own, and a block. Most files leave it out.
    pooled = layer(width, ffn) + width if v.get("vision_use_head") is True else 0
    return _patch(v, width) + (_patches(v) + 1) * width + 2 * width + layers + pooled


def _siglip2(v: Config, config: Config, hidden: int) -> int:
    """Return SigLIP 2's tower: as SigLIP's, with so many places for patches of any image."""
    patch, places = whole(v, "patch_size", otherwise=16), whole(v, "num_patches", otherwise=256)
    sized = {**v, "patch_size": patch, "image_size": patch}
    pooled = v.get("vision_use_head", True)
    return _siglip({**sized, "vision_use_head": pooled}, config, hidden) + (places - 1) * whole(
        v, "hidden_size", otherwise=768
    )


def _qwen2(v: Config, config: Config, hidden: int) -> int:
    width = whole(v, "embed_dim", otherwise=1280)
    ffn = whole(v, "mlp_ratio", otherwise=4) * width
    layers = whole(v, "depth", otherwise=32) * layer(width, ffn)
    return _patch(v, width, whole(v, "temporal_patch_size", otherwise=2)) + layers + merger(v, width, 2 * width, hidden)


def _qwen2_5(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=1280), whole(v, "intermediate_size", otherwise=3420)
    layers = whole(v, "depth", otherwise=32) * layer(width, ffn, gated=True, norm_biases=False)
    joined = merger(v, width, width, whole(v, "out_hidden_size", otherwise=hidden))
    return _patch(v, width, whole(v, "temporal_patch_size", otherwise=2)) + layers + joined


def _qwen3(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=1152), whole(v, "intermediate_size", otherwise=4304)
    out = whole(v, "out_hidden_size", otherwise=hidden)
    layers = whole(v, "depth", otherwise=27) * layer(width, ffn)
    start = _patch(v, width, whole(v, "temporal_patch_size", otherwise=2)) + width
    start += whole(v, "num_position_embeddings", otherwise=2304) * width
    given = v.get("deepstack_visual_indexes")
    deep = len(given) if isinstance(given, list) else 3
    if str(config.get("model_type", "")).startswith("qwen3_5"):
        deep = 0  # its tower hands on what its last layer says, whatever the config lists
    wide = whole(v, "spatial_merge_size", otherwise=2) ** 2 * width
    return start + layers + merger(v, width, 2 * width, out) + deep * merger(v, width, 2 * wide, out)


def _llama4(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=1408), whole(v, "intermediate_size", otherwise=5632)
    layers = whole(v, "num_hidden_layers", otherwise=34) * layer(width, ffn)
    out = whole(v, "projector_output_dim", otherwise=4096)
    joined = ffn * whole(v, "projector_input_dim", otherwise=4096) + out * out + out * hidden
    return _patch(v, width) + (_patches(v) + 2) * width + 4 * width + layers + joined


def _mllama(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=1280), whole(v, "intermediate_size", otherwise=5120)
    layers = whole(v, "num_hidden_layers", otherwise=32) + whole(v, "num_global_layers", otherwise=8)
    tiles, places = whole(v, "max_num_tiles", otherwise=4), _patches(v) + 1
    ratios = v.get("supported_aspect_ratios")
    shapes = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    positions = places * width + shapes * tiles * width * (places + 2)
    joined = (whole(v, "vision_output_dim", otherwise=7680) + 1) * hidden
    return _patch(v, width) + 5 * width + positions + layers * layer(width, ffn, biased=False) + joined


def _moonvit(v: Config, config: Config, hidden: int) -> int:
    """Return Kimi's MoonViT with what joins two by two patches."""
    width, ffn = (
        whole(v, "vt_hidden_size", "hidden_size", otherwise=1152),
        whole(v, "vt_intermediate_size", "intermediate_size", otherwise=4304),
    )
    layers = whole(v, "vt_num_hidden_layers", "num_hidden_layers", otherwise=27) * layer(width, ffn)
    places = whole(v, "init_pos_emb_height", otherwise=64) * whole(v, "init_pos_emb_width", otherwise=64)
    return _patch(v, width) + (1 + places + 2) * width + layers + merger(v, width, 2 * width, hidden)


def _gemma4(v: Config, config: Config, hidden: int) -> int:
    """Return Gemma 4's tower: gated blocks without biases, four norms a layer, one table of places a direction."""
    width, ffn = whole(v, "hidden_size", otherwise=768), whole(v, "intermediate_size", otherwise=3072)
    heads, size = whole(v, "num_attention_heads", otherwise=12), whole(v, "head_dim", otherwise=64)
    keys = whole(v, "num_key_value_heads", otherwise=heads)
    each = 2 * width * size * (heads + keys) + 3 * width * ffn + 4 * width + 2 * size
    layers = whole(v, "num_hidden_layers", otherwise=16) * each
    places = 2 * whole(v, "position_embedding_size", otherwise=10240) * width
    return _patch(v, width) + places + layers + width * hidden


def _pixtral(v: Config, config: Config, hidden: int) -> int:
    """Return Pixtral's tower (Mistral 3): gated blocks, no biases."""
    width, ffn = whole(v, "hidden_size", otherwise=1024), whole(v, "intermediate_size", otherwise=4096)
    layers = whole(v, "num_hidden_layers", otherwise=24) * (4 * width * width + 3 * width * ffn + 2 * width)
    return _patch({**v, "patch_size": whole(v, "patch_size", otherwise=16)}, width) + width + layers


def _internvl(v: Config, config: Config, hidden: int) -> int:
    """Return InternVL's tower: a scale on what each half of a layer adds, biases on queries to values by its key."""
    width, ffn = whole(v, "hidden_size", otherwise=1024), whole(v, "intermediate_size", otherwise=4096)
    biased = v.get("attention_bias", v.get("qkv_bias")) is True
    normed = v.get("use_qk_norm", v.get("qk_normalization")) is True
    each = layer(width, ffn) + 2 * width - (0 if biased else 3 * width) + (2 * width if normed else 0)
    places = _patches(v) + 1 if v.get("use_absolute_position_embeddings", True) else 0
    tower = _patch(v, width) + width + (1 + places) * width + whole(v, "num_hidden_layers", otherwise=24) * each
    return tower + (0 if v.get("use_mean_pooling", True) else 2 * width)


def _idefics3(v: Config, config: Config, hidden: int) -> int:
    """Return the tower of Idefics 3 and SmolVLM: SigLIP's, without what pools its patches."""
    width = whole(v, "hidden_size", otherwise=1152)
    layers = whole(v, "num_hidden_layers", otherwise=12) * layer(width, whole(v, "intermediate_size", otherwise=3072))
    start = _patch({**v, "patch_size": whole(v, "patch_size", otherwise=32)}, width) + width
    return start + _patches(v) * width + layers + 2 * width


def _exaone(v: Config, config: Config, hidden: int) -> int:
    """Return EXAONE 4.5's tower: Qwen 2.5's, with fewer heads for keys than for queries."""
    width, heads = whole(v, "hidden_size", otherwise=2048), whole(v, "num_heads", otherwise=32)
    fewer = 2 * (width - whole(v, "num_key_value_heads", otherwise=8) * (width // heads))
    return _qwen2_5({**v, "hidden_size": width}, config, hidden) - whole(v, "depth", otherwise=28) * fewer * (width + 1)


def _glm(v: Config, config: Config, hidden: int) -> int:
    """Return the tower of GLM 4.1V to 4.6V: gated blocks of the language model's size, and a gated merger."""
    width, out = whole(v, "hidden_size", otherwise=1536), whole(v, "out_hidden_size", otherwise=hidden)
    biases = 3 * width if v.get("attention_bias") else 0
    layers = whole(v, "depth", otherwise=24) * (4 * width * width + biases + 3 * width * out + 2 * width)
    start = _patch(v, width, whole(v, "temporal_patch_size", otherwise=2)) + width
    places = _patches({**v, "image_size": whole(v, "image_size", otherwise=336)}) * width + 2 * width
    down = whole(v, "spatial_merge_size", otherwise=2) ** 2 * width * out + out
    return start + places + layers + down + out * (out + 2) + 3 * out * whole(v, "intermediate_size", otherwise=13696)


_Count = Callable[[Config, Config, int], int]
_TOWERS: dict[str, _Count] = {
    "clip_vision_model": _clip, "siglip_vision_model": _siglip, "siglip2_vision_model": _siglip2,
    "qwen2_vl": _qwen2, "qwen2_5_vl": _qwen2_5, "qwen3_vl": _qwen3, "qwen3_vl_moe": _qwen3, "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3, "llama4_vision_model": _llama4, "llama4": _llama4, "mllama_vision_model": _mllama,
    "mllama": _mllama, "kimi_k25": _moonvit, "kimi_vl": _moonvit, "gemma4_vision": _gemma4, "pixtral": _pixtral,
    "internvl_vision": _internvl, "intern_vit_6b": _internvl, "idefics3_vision": _idefics3,
    "smolvlm_vision": _idefics3, "idefics3": _idefics3, "smolvlm": _idefics3, "exaone4_5": _exaone, "glm4v": _glm,
    "glm46v": _glm, "glm4v_moe": _glm,
}  # fmt: skip
