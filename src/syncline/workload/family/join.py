"""What joins an image tower to a language model, family by family: a tower alone does not say how it is joined."""

from __future__ import annotations

from collections.abc import Callable

from syncline.workload.family.keys import Config, whole

Join = Callable[[Config, Config, int], int]


def merger(v: Config, width: int, norm: int, out: int) -> int:
    """Return what joins neighbouring patches and brings them to the language model's size."""
    wide = whole(v, "spatial_merge_size", otherwise=2) ** 2 * width
    return norm + (wide + 1) * wide + (wide + 1) * out


def _inside(v: Config, config: Config, hidden: int) -> int:
    """Return nothing: what joins is counted with the tower."""
    return 0


def _two_matrices(v: Config, config: Config, hidden: int) -> int:
    """Return LLaVA's: from the tower's size, once a layer that is taken, and from there to the same size again."""
    width, bias = _width(v), bool(config.get("multimodal_projector_bias", True))
    return (_taken(config, "vision_feature_layer") * width + bias) * hidden + (hidden + bias) * hidden


def _vip(v: Config, config: Config, hidden: int) -> int:
    """Return ViP-LLaVA's: five layers of the tower side by side, normalised."""
    given = config.get("vision_feature_layers")
    wide = (len(given) if isinstance(given, list) else 5) * _width(v)
    return 2 * wide + (wide + 1) * hidden + (hidden + 1) * hidden


def _gemma3(v: Config, config: Config, hidden: int) -> int:
    return _width(v) * hidden + _width(v)


def _paligemma(v: Config, config: Config, hidden: int) -> int:
    return (_width(v) + 1) * hidden


def _aya(v: Config, config: Config, hidden: int) -> int:
    """Return Cohere's: neighbouring patches through a gated block; Aya normalises them first."""
    wide = whole(config, "downsample_factor", otherwise=2) ** 2 * _width(v)
    inner = whole(config, "alignment_intermediate_size", otherwise=hidden)
    norm = 2 * wide if config.get("model_type") == "aya_vision" else 0
    return norm + (wide + 1) * inner + (inner // 2 + 1) * hidden


def _lfm2(v: Config, config: Config, hidden: int) -> int:
    wide = whole(config, "downsample_factor", otherwise=2) ** 2 * _width(v)
    inner, bias = whole(config, "projector_hidden_size", otherwise=2560), bool(config.get("projector_bias", True))
    norm = 2 * wide if config.get("projector_use_layernorm", True) else 0
    return norm + (wide + bias) * inner + (inner + bias) * hidden


def _mistral3(v: Config, config: Config, hidden: int) -> int:
    """Return Mistral 3's: a norm, one matrix that merges neighbouring patches, and LLaVA's two without biases."""
    width, bias = _width(v, 1024), bool(config.get("multimodal_projector_bias", False))
    merged = width + whole(config, "spatial_merge_size", otherwise=2) ** 2 * width * width
    taken = _taken(config, "vision_feature_layer")
    return merged + (taken * width + bias) * hidden + (hidden + bias) * hidden


def _internvl(v: Config, config: Config, hidden: int) -> int:
    wide = round(1 / float(config.get("downsample_ratio") or 0.5)) ** 2 * _width(v, 1024)
    return 2 * wide + (wide + 1) * hidden + (hidden + 1) * hidden


def _idefics3(v: Config, config: Config, hidden: int) -> int:
    """Return that of Idefics 3 and SmolVLM: one matrix that takes so many patches at once."""
    return whole(config, "scale_factor", otherwise=2) ** 2 * _width(v, 1152) * hidden


def _width(v: Config, otherwise: int = 768) -> int:
    return whole(v, "hidden_size", otherwise=otherwise)


def _taken(config: Config, key: str) -> int:
    """Return how many layers of the tower are taken side by side."""
    given = config.get(key)
    return len(given) if isinstance(given, list) else 1


JOINS: dict[str, Join] = {
    **dict.fromkeys(("llava", "llava_next", "llava_next_video", "llava_onevision"), _two_matrices),
    "vipllava": _vip, "gemma3": _gemma3, "shieldgemma2": _gemma3, "paligemma": _paligemma,
    "aya_vision": _aya, "cohere2_vision": _aya, "lfm2_vl": _lfm2,
    "mistral3": _mistral3, "lighton_ocr": _mistral3, "internvl": _internvl, "internvl_chat": _internvl,
    "idefics3": _idefics3, "smolvlm": _idefics3,
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "llama4",
                     "mllama", "kimi_k25", "kimi_vl", "gemma4", "exaone4_5", "glm4v", "glm46v", "glm4v_moe"), _inside),
}  # fmt: skip
