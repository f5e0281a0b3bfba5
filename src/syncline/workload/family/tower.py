"""The network that images pass before the language model: its parameters, with those of what joins the two (`join`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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
    kind = _TOWERS.get(str(vision.get("model_type", ""))) or _TOWERS.get(family)
    if kind is None:
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
    return (Tower(name="vision", params=kind.params(vision, config, hidden) + joined(vision, config, hidden)),)


@dataclass(frozen=True)
class Vision:
    """One tower's numbers: its config, that of the whole model, the language model's size, and its own sizes."""

    v: Config
    config: Config
    hidden: int
    width: int
    ffn: int
    depth: int
    patches: int

    def __call__(self, *keys: str, otherwise: int) -> int:
        return whole(self.v, *keys, otherwise=otherwise)

    def layer(self, *, biased: bool = True, gated: bool = False, norm_biases: bool = True) -> int:
        """Return the parameters of one layer."""
        attention = 4 * self.width * (self.width + biased)
        block = (2 + gated) * self.width * self.ffn + (1 + gated) * self.ffn + self.width
        return attention + block + 2 * self.width * (1 + norm_biases)

    def merged(self, norm: int, out: int) -> int:
        """Return what joins neighbouring patches and brings them to a size."""
        return merger(self.v, self.width, norm, out)

    def out(self) -> int:
        return self("out_hidden_size", otherwise=self.hidden)


@dataclass(frozen=True)
class VisionKind:
    """A kind of image tower: the defaults of its sizes, one of its layers, and what stands around the layers."""

    width: int
    ffn: int
    depth: int
    rest: Callable[[Vision], int]
    each: Callable[[Vision], int] = Vision.layer
    depth_key: str = "num_hidden_layers"
    patch: int = 14
    image: int = 224
    frames: int = 1
    """Frames that a patch spans, unless the config says."""

    def params(self, v: Config, config: Config, hidden: int) -> int:
        """Return the parameters of a tower of this kind."""
        width = whole(v, "vt_hidden_size", "embed_dim" if self is _QWEN2 else "hidden_size", otherwise=self.width)
        ffn = whole(v, "vt_intermediate_size", "intermediate_size", otherwise=self.ffn)
        depth = whole(v, f"vt_{self.depth_key}", self.depth_key, otherwise=self.depth)
        patch = whole(v, "patch_size", otherwise=self.patch)
        side = whole(v, "image_size", otherwise=self.image) // patch
        frames = whole(v, "temporal_patch_size", otherwise=self.frames) if self.frames > 1 else 1
        taken = whole(v, "num_channels", "in_channels", otherwise=3) * frames * patch**2 * width
        seen = Vision(v, config, hidden, width, ffn, depth, side * side)
        return taken + depth * self.each(seen) + self.rest(seen)


def _pooled(n: Vision, usual: bool) -> int:
    """Return what pools all patches into one: attention with a query of its own, and a block. Most files have none."""
    return n.layer() + n.width if n.v.get("vision_use_head", usual) is True else 0


def _qwen3(n: Vision) -> int:
    given = n.v.get("deepstack_visual_indexes")
    deep = len(given) if isinstance(given, list) else 3
    if str(n.config.get("model_type", "")).startswith("qwen3_5"):
        deep = 0  # its tower hands on its last layer alone, whatever the config lists
    wide = n("spatial_merge_size", otherwise=2) ** 2 * n.width
    places = (1 + n("num_position_embeddings", otherwise=2304)) * n.width
    return places + n.merged(2 * n.width, n.out()) + deep * n.merged(2 * wide, n.out())


def _llama4(n: Vision) -> int:
    out = n("projector_output_dim", otherwise=4096)
    joined = n.ffn * n("projector_input_dim", otherwise=4096) + out * out + out * n.hidden
    return (n.patches + 6) * n.width + joined


def _mllama(n: Vision) -> int:
    """Return global layers, positions of patches, tiles and shapes of images, and the projection."""
    layers = n("num_global_layers", otherwise=8) * n.layer(biased=False)
    tiles, places = n("max_num_tiles", otherwise=4), n.patches + 1
    ratios = n.v.get("supported_aspect_ratios")
    shapes = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    positions = places * n.width + shapes * tiles * n.width * (places + 2)
    return layers + 5 * n.width + positions + (n("vision_output_dim", otherwise=7680) + 1) * n.hidden


def _moonvit(n: Vision) -> int:
    """Return Kimi's places, and what joins two by two patches."""
    places = n("init_pos_emb_height", otherwise=64) * n("init_pos_emb_width", otherwise=64)
    return (places + 3) * n.width + n.merged(2 * n.width, n.hidden)


def _gemma4_layer(n: Vision) -> int:
    """Return a gated block without biases, with four norms."""
    heads, size = n("num_attention_heads", otherwise=12), n("head_dim", otherwise=64)
    keys = n("num_key_value_heads", otherwise=heads)
    return 2 * n.width * size * (heads + keys) + 3 * n.width * n.ffn + 4 * n.width + 2 * size


def _internvl_layer(n: Vision) -> int:
    """Return a layer with a scale on what each half adds; biases on queries to values, and norms, by its keys."""
    biased = n.v.get("attention_bias", n.v.get("qkv_bias")) is True
    normed = n.v.get("use_qk_norm", n.v.get("qk_normalization")) is True
    return n.layer() + 2 * n.width - (0 if biased else 3 * n.width) + (2 * n.width if normed else 0)


def _internvl(n: Vision) -> int:
    places = n.patches + 1 if n.v.get("use_absolute_position_embeddings", True) else 0
    return (2 + places) * n.width + (0 if n.v.get("use_mean_pooling", True) else 2 * n.width)


def _exaone_layer(n: Vision) -> int:
    """Return a layer of Qwen 2.5 with fewer heads for keys than for queries."""
    size = n.width // n("num_heads", otherwise=32)
    fewer = 2 * (n.width - n("num_key_value_heads", otherwise=8) * size)
    return n.layer(gated=True, norm_biases=False) - fewer * (n.width + 1)


def _glm_layer(n: Vision) -> int:
    """Return a gated block of the language model's size."""
    biases = 3 * n.width if n.v.get("attention_bias") else 0
    return 4 * n.width * n.width + biases + 3 * n.width * n.out() + 2 * n.width


def _glm(n: Vision) -> int:
    out = n.out()
    down = n("spatial_merge_size", otherwise=2) ** 2 * n.width * out + out
    return (n.patches + 3) * n.width + down + out * (out + 2) + 3 * out * n.ffn


_SIGLIP = VisionKind(768, 3072, 12, lambda n: (n.patches + 3) * n.width + _pooled(n, False))
_QWEN2 = VisionKind(
    1280, 0, 32, lambda n: n.merged(2 * n.width, n.hidden), depth_key="depth", frames=2,
    each=lambda n: replace(n, ffn=n("mlp_ratio", otherwise=4) * n.width).layer(),
)  # fmt: skip
_QWEN2_5 = VisionKind(
    1280, 3420, 32, lambda n: n.merged(n.width, n.out()), depth_key="depth", frames=2,
    each=lambda n: n.layer(gated=True, norm_biases=False),
)  # fmt: skip
_QWEN3 = VisionKind(1152, 4304, 27, _qwen3, depth_key="depth", frames=2)
_LLAMA4 = VisionKind(1408, 5632, 34, _llama4)
_MLLAMA = VisionKind(1280, 5120, 32, _mllama, each=lambda n: n.layer(biased=False))
_MOONVIT = VisionKind(1152, 4304, 27, _moonvit)
_INTERNVL = VisionKind(1024, 4096, 24, _internvl, each=_internvl_layer)
_IDEFICS3 = VisionKind(1152, 3072, 12, lambda n: (n.patches + 3) * n.width, patch=32)
_GLM = VisionKind(1536, 13696, 24, _glm, each=_glm_layer, depth_key="depth", image=336, frames=2)
_TOWERS: dict[str, VisionKind] = {
    "clip_vision_model": VisionKind(768, 3072, 12, lambda n: (n.patches + 6) * n.width),
    "siglip_vision_model": _SIGLIP,
    # As SigLIP's, with so many places for patches of any image.
    "siglip2_vision_model": VisionKind(
        768, 3072, 12, lambda n: (n("num_patches", otherwise=256) + 3) * n.width + _pooled(n, True), patch=16
    ),
    "qwen2_vl": _QWEN2, "qwen2_5_vl": _QWEN2_5, "qwen3_vl": _QWEN3, "qwen3_vl_moe": _QWEN3, "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3, "llama4_vision_model": _LLAMA4, "llama4": _LLAMA4, "mllama_vision_model": _MLLAMA,
    "mllama": _MLLAMA, "kimi_k25": _MOONVIT, "kimi_vl": _MOONVIT,
    "gemma4_vision": VisionKind(
        768, 3072, 16, lambda n: 2 * n("position_embedding_size", otherwise=10240) * n.width + n.width * n.hidden,
        each=_gemma4_layer,
    ),
    "pixtral": VisionKind(
        1024, 4096, 24, lambda n: n.width, patch=16, each=lambda n: 4 * n.width**2 + 3 * n.width * n.ffn + 2 * n.width
    ),
    "internvl_vision": _INTERNVL, "intern_vit_6b": _INTERNVL, "idefics3_vision": _IDEFICS3,
    "smolvlm_vision": _IDEFICS3, "idefics3": _IDEFICS3, "smolvlm": _IDEFICS3,
    "exaone4_5": replace(_QWEN2_5, width=2048, depth=28, each=_exaone_layer), "glm4v": _GLM, "glm46v": _GLM,
    "glm4v_moe": _GLM,
}  # fmt: skip
