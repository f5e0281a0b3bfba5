"""Families whose layers differ: which of them have attention, which another mixer, which a feed-forward block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.errors import DescriptionError
from syncline.workload.family import mixer
from syncline.workload.family.gemma4 import gemma4_fields
from syncline.workload.family.keys import Config, kinds, whole
from syncline.workload.shape import Mixer

Fields = dict[str, object]


def hybrid_fields(data: Config, family: str, layers: int, hidden: int) -> Fields:
    """Return the fields of a Shape that say what its layers are; none where all have attention and a block."""
    read = _FAMILIES.get(family)
    return read(data, layers, hidden) if read else {}


def _mixed(found: Mixer | None, attention: int, **more: Any) -> Fields:
    return {"mixers": (found,) if found else (), "attention_layers": attention, **more}


def _alone(make: Callable[[Config, int, int], Mixer]) -> Callable[[Config, int, int], Fields]:
    """Return a reader of a family whose layers are a mixer and nothing else."""
    return lambda data, layers, hidden: _mixed(make(data, layers, hidden), 0, ffn_layers=0, norms=1)


def _jamba(data: Config, layers: int, hidden: int) -> Fields:
    period, offset = whole(data, "attn_layer_period", otherwise=8), whole(data, "attn_layer_offset", otherwise=4)
    attention = sum(layer % period == offset for layer in range(layers))
    return _mixed(mixer.mamba(data, layers - attention, hidden, normed=True), attention)


def _nemotron_h(data: Config, layers: int, hidden: int) -> Fields:
    words = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
    pattern = str(data.get("hybrid_override_pattern") or "")
    pattern = pattern or "".join(words.get(kind, "?") for kind in kinds(data, "layers_block_type"))
    if not pattern or set(pattern) - set("M*-E"):
        raise DescriptionError(
            'nemotron_h needs "hybrid_override_pattern", a letter a layer: M, *, - or E.', hint="Correct the config."
        )
    blocks = pattern.count("-") + pattern.count("E")
    states = mixer.mamba2(data, pattern.count("M"), hidden) if "M" in pattern else None
    fields = _mixed(states, pattern.count("*"), ffn_layers=blocks, norms=1, layers=len(pattern), gated=False)
    return fields | {"dense_layers": pattern.count("-")}


def _listed(make: Callable[[Config, int, int], Mixer]) -> Callable[[Config, int, int], Fields]:
    """Return a reader of a family that lists its layers, or says how many come before one of full attention."""

    def read(data: Config, layers: int, hidden: int) -> Fields:
        listed = kinds(data, "layer_types", "layers_block_type")
        if listed:
            others = sum("mamba" in kind or "linear" in kind for kind in listed)
        else:
            every = whole(data, "full_attention_interval", otherwise=4)
            others = layers - layers // every
        found = make(data, others, hidden) if others else None
        return _mixed(found, layers - others)

    return read


def _bamba(data: Config, layers: int, hidden: int) -> Fields:
    if kinds(data, "layer_types", "layers_block_type"):
        return _listed(mixer.mamba2)(data, layers, hidden)
    attention = len(data.get("attn_layer_indices") or ())
    return _mixed(mixer.mamba2(data, layers - attention, hidden), attention)


def _falcon_h1(data: Config, layers: int, hidden: int) -> Fields:
    silent = {**data, "mamba_rms_norm": bool(data.get("mamba_rms_norm", False))}
    return _mixed(mixer.mamba2(silent, layers, hidden, beside=True), layers)


def _lfm2(data: Config, layers: int, hidden: int) -> Fields:
    full = data.get("full_attn_idxs")
    attention = len(full) if isinstance(full, list) else layers
    attention = kinds(data, "layer_types").count("full_attention") or attention
    fields = _mixed(
        mixer.short_convolution(data, layers - attention, hidden) if attention < layers else None, attention
    )
    return fields | {"ffn": _lfm2_width(data, hidden), "qk_norm": True}


def _lfm2_width(data: Config, hidden: int) -> int:
    """Return the width of LFM2's block: two thirds of what is written, in steps, unless it says not to adjust."""
    width = whole(data, "block_ff_dim", "intermediate_size", otherwise=4 * hidden)
    if data.get("block_auto_adjust_ff_dim", True) is False:
        return width
    step = whole(data, "block_multiple_of", otherwise=256)
    scaled = int(float(data.get("block_ffn_dim_multiplier") or 1.0) * int(2 * width / 3))
    return -(-scaled // step) * step


def _kimi_linear(data: Config, layers: int, hidden: int) -> Fields:
    given = data.get("linear_attn_config")
    linear = given if isinstance(given, dict) else {}
    linear = linear or {
        "num_heads": data.get("linear_num_heads"), "head_dim": data.get("linear_head_dim"),
        "short_conv_kernel_size": data.get("linear_conv_kernel_dim"),
    }  # fmt: skip
    listed = kinds(data, "layer_types").count("full_attention")
    attention = listed or len(linear.get("full_attn_layers") or ()) or layers // 4
    return _mixed(mixer.delta_attention(linear, layers - attention, hidden), attention)


def _minimax(data: Config, layers: int, hidden: int) -> Fields:
    listed = kinds(data, "layer_types")
    types = data.get("attn_type_list")
    if not listed and isinstance(types, list):
        listed = ["full" if kind else "linear" for kind in types]
    # Without a list, transformers alternates: full attention in every second layer.
    linear = sum("linear" in kind for kind in listed) if listed else -(-layers // 2)
    return _mixed(mixer.lightning(data, linear, hidden) if linear else None, layers - linear)


def _recurrent_gemma(data: Config, layers: int, hidden: int) -> Fields:
    cycle = kinds(data, "block_types", "_block_types") or ["recurrent", "recurrent", "attention"]
    recurrent = sum(cycle[layer % len(cycle)] == "recurrent" for layer in range(layers))
    width = whole(data, "intermediate_size", otherwise=6 * hidden) // 2
    window = {"window": whole(data, "attention_window_size", otherwise=2048), "window_share": 1.0}
    return _mixed(mixer.gated_recurrence(data, recurrent, hidden), layers - recurrent, ffn=width, **window)


def _rwkv(data: Config, layers: int, hidden: int) -> Fields:
    return _mixed(mixer.time_mixing(data, layers, hidden), 0, gated=False, norm_biases=True)


def _blocks(data: Config, layers: int, hidden: int) -> Fields:
    """Return layers that a search shaped one by one (DeciLM, Nemotron 49B, 51B and 253B): their mean."""
    listed = data.get("block_configs")
    if not isinstance(listed, list) or not listed:
        raise DescriptionError('"block_configs" lists what each layer has.', hint="Correct the config.json.")
    heads, groups, widths, linear = whole(data, "num_attention_heads"), list[int](), list[int](), 0
    for block in listed:
        attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
        if attention.get("replace_with_linear"):
            linear += hidden * hidden
        elif not attention.get("no_op"):
            groups.append(heads // int(attention.get("n_heads_in_group") or 1))
        if ffn.get("replace_with_linear"):
            linear += hidden * hidden
        elif not ffn.get("no_op"):
            widths.append(int(ffn.get("intermediate_size") or _decilm_width(float(ffn.get("ffn_mult") or 1), hidden)))
    kv = _nearest_group(sum(groups) / max(len(groups), 1), heads)
    ffn = sum(widths) // max(len(widths), 1)
    size = whole(data, "head_dim", otherwise=hidden // heads)
    rest = (
        linear + 2 * hidden * size * (sum(groups) - kv * len(groups)) + 3 * hidden * (sum(widths) - ffn * len(widths))
    )
    return {
        "layers": len(listed), "attention_layers": len(groups), "ffn_layers": len(widths), "kv_heads": kv, "ffn": ffn,
        "extra_params": max(rest, 0),
    }  # fmt: skip


def _decilm_width(multiple: float, hidden: int) -> int:
    """Return the width of a block of DeciLM: two thirds of the multiple of the hidden size, in steps of 256."""
    width = int(2 * multiple * hidden / 3)
    return -(-width // 256) * 256


def _nearest_group(mean: float, heads: int) -> int:
    """Return the largest number of key heads that is no more than the mean and divides the heads."""
    return max(number for number in range(1, heads + 1) if heads % number == 0 and number <= max(mean, 1))


_FAMILIES: dict[str, Callable[[Config, int, int], Fields]] = {
    "mamba": _alone(mixer.mamba), "falcon_mamba": _alone(mixer.mamba), "mamba2": _alone(mixer.mamba2),
    "jamba": _jamba, "nemotron_h": _nemotron_h, "bamba": _bamba,
    "granitemoehybrid": _listed(mixer.mamba2), "falcon_h1": _falcon_h1,
    "lfm2": _lfm2, "lfm2_moe": _lfm2, "kimi_linear": _kimi_linear,
    "minimax": _minimax, "minimax_text_01": _minimax, "minimax_m1": _minimax,
    "qwen3_next": _listed(mixer.gated_delta), "qwen3_5": _listed(mixer.gated_delta),
    "qwen3_5_text": _listed(mixer.gated_delta), "qwen3_5_moe": _listed(mixer.gated_delta),
    "qwen3_5_moe_text": _listed(mixer.gated_delta), "beam": _listed(mixer.gated_delta),
    "gemma4_text": gemma4_fields,
    "recurrent_gemma": _recurrent_gemma, "rwkv": _rwkv, "nemotron-nas": _blocks, "deci": _blocks, "decilm": _blocks,
}  # fmt: skip
