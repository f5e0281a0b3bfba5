"""The network that images pass before the language model: its parameters, with those of what joins the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.errors import DescriptionError
from syncline.workload.family.keys import Config, whole
from syncline.workload.shape import Tower


def towers_of(config: Config, hidden: int) -> tuple[Tower, ...]:
    """Return the towers of a multimodal config, whose language model has that hidden size."""
    if isinstance(config.get("audio_config"), Mapping) and config["audio_config"]:
        raise DescriptionError(
            f"{config.get('model_type') or 'the model'} has an audio tower, which syncline does not read.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or not vision:
        return ()
    family = str(config.get("model_type", ""))
    if family in _JOINED_OTHERWISE:
        raise DescriptionError(
            f"{family} joins its image tower and its language model in a way that syncline does not know.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    count = _COUNTS.get(str(vision.get("model_type", ""))) or _COUNTS.get(family)
    if count is None:
        raise DescriptionError(
            f"{family or 'the model'} has an image tower ({vision.get('model_type', 'unnamed')}) that syncline "
            "does not know.",
            hint="Take the `text_config` alone, or give the model's shape.",
        )
    return (Tower(name="vision", params=count(vision, config, hidden)),)


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
    tower = _patch(v, width) + (_patches(v) + 2) * width + 4 * width + layers
    return tower + (width + 1) * hidden + (hidden + 1) * hidden


def _siglip(v: Config, config: Config, hidden: int) -> int:
    width = whole(v, "hidden_size", otherwise=768)
    layers = whole(v, "num_hidden_layers", otherwise=12) * layer(width, whole(v, "intermediate_size", otherwise=3072))
    return _patch(v, width) + (_patches(v) + 1) * width + 2 * width + layers + width * hidden + width


def _qwen2(v: Config, config: Config, hidden: int) -> int:
    width = whole(v, "embed_dim", otherwise=1280)
    ffn = whole(v, "mlp_ratio", otherwise=4) * width
    layers = whole(v, "depth", otherwise=32) * layer(width, ffn)
    return (
        _patch(v, width, whole(v, "temporal_patch_size", otherwise=2)) + layers + _merger(v, width, 2 * width, hidden)
    )


def _qwen2_5(v: Config, config: Config, hidden: int) -> int:
    width, ffn = whole(v, "hidden_size", otherwise=1280), whole(v, "intermediate_size", otherwise=3420)
    layers = whole(v, "depth", otherwise=32) * layer(width, ffn, gated=True, norm_biases=False)
    joined = _merger(v, width, width, whole(v, "out_hidden_size", otherwise=hidden))
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
    return start + layers + _merger(v, width, 2 * width, out) + deep * _merger(v, width, 2 * wide, out)


def _merger(v: Config, width: int, norm: int, out: int) -> int:
    """Return what joins neighbouring patches and brings them to the language model's size."""
    wide = whole(v, "spatial_merge_size", otherwise=2) ** 2 * width
    return norm + (wide + 1) * wide + (wide + 1) * out


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
        whole(v, "vt_intermediate_size", otherwise=4304),
    )
    layers = whole(v, "vt_num_hidden_layers", "num_hidden_layers", otherwise=27) * layer(width, ffn)
    places = whole(v, "init_pos_emb_height", otherwise=64) * whole(v, "init_pos_emb_width", otherwise=64)
    return _patch(v, width) + (1 + places + 2) * width + layers + _merger(v, width, 2 * width, hidden)


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
    """Return Pixtral's tower (Mistral 3): gated blocks, no biases, and what merges neighbouring patches."""
    width, ffn = whole(v, "hidden_size", otherwise=1024), whole(v, "intermediate_size", otherwise=4096)
    layers = whole(v, "num_hidden_layers", otherwise=24) * (4 * width * width + 3 * width * ffn + 2 * width)
    bias = bool(config.get("multimodal_projector_bias", config.get("model_type") != "mistral3"))
    joined = (width + bias) * hidden + (hidden + bias) * hidden
    if config.get("model_type") == "mistral3":
        joined += width + whole(config, "spatial_merge_size", otherwise=2) ** 2 * width * width
    return _patch({**v, "patch_size": whole(v, "patch_size", otherwise=16)}, width) + width + layers + joined


def _internvl(v: Config, config: Config, hidden: int) -> int:
    """Return InternVL's tower: a scale on what each half of a layer adds, biases on queries to values by its key."""
    width, ffn = whole(v, "hidden_size", otherwise=1024), whole(v, "intermediate_size", otherwise=4096)
    biased, normed = v.get("attention_bias") is True, v.get("use_qk_norm") is True
    each = layer(width, ffn) + 2 * width - (0 if biased else 3 * width) + (2 * width if normed else 0)
    places = _patches(v) + 1 if v.get("use_absolute_position_embeddings", True) else 0
    wide = round(1 / float(config.get("downsample_ratio") or 0.5)) ** 2 * width
    joined = 2 * wide + (wide + 1) * hidden + (hidden + 1) * hidden
    tower = _patch(v, width) + width + (1 + places) * width + whole(v, "num_hidden_layers", otherwise=24) * each
    return tower + joined + (0 if v.get("use_mean_pooling", True) else 2 * width)


def _idefics3(v: Config, config: Config, hidden: int) -> int:
    """Return the tower of Idefics 3 and SmolVLM: SigLIP's, and one matrix that takes so many patches at once."""
    width = whole(v, "hidden_size", otherwise=1152)
    layers = whole(v, "num_hidden_layers", otherwise=12) * layer(width, whole(v, "intermediate_size", otherwise=3072))
    start = _patch({**v, "patch_size": whole(v, "patch_size", otherwise=32)}, width) + width
    return (
        start
        + _patches(v) * width
        + layers
        + 2 * width
        + whole(config, "scale_factor", otherwise=2) ** 2 * width * hidden
    )


#: Families with a tower that is known and a way of their own to join it, or a second tower.
_JOINED_OTHERWISE = {"cohere2_vision", "deepseek_vl", "deepseek_vl_hybrid", "video_llava"}
_Count = Callable[[Config, Config, int], int]
_COUNTS: dict[str, _Count] = {
    "clip_vision_model": _clip, "siglip_vision_model": _siglip, "qwen2_vl": _qwen2, "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3, "qwen3_vl_moe": _qwen3, "qwen3_5": _qwen3, "qwen3_5_moe": _qwen3,
    "llama4_vision_model": _llama4, "llama4": _llama4, "mllama_vision_model": _mllama, "mllama": _mllama,
    "kimi_k25": _moonvit, "gemma4_vision": _gemma4, "pixtral": _pixtral, "internvl_vision": _internvl,
    "idefics3_vision": _idefics3, "smolvlm_vision": _idefics3, "idefics3": _idefics3, "smolvlm": _idefics3,
}  # fmt: skip
