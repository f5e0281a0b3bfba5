"""What layers compute beside their sizes, from a config.json: keys differ between families, the traits are the same."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.workload.family.defaults import traits
from syncline.workload.family.keys import Config, first, whole
from syncline.workload.traits import Rotary, Router, Traits

_EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
_ACTIVATION = ("hidden_activation", "hidden_act", "activation_function")
#: Names of one function in files of different ages.
_SAME = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}
_HIDDEN_DROPOUT = ("resid_pdrop", "hidden_dropout", "dropout", "residual_dropout")


def traits_of(data: Config, family: str, experts: bool) -> Traits | None:
    """Return the traits of a config; None where syncline knows the sizes of its family alone."""
    known: Mapping[str, Config] = traits()["computed"]
    if family not in known:
        return None
    own = dict(known[family])
    root = own.pop("embedding_scale", None) == "root"
    data = {**own.pop("defaults", {}), **data}
    given = {
        "norm_eps": _number(data, *_EPS), "activation": _activation(data),
        "activation_limit": _number(data, "swiglu_limit"), "query_size": _number(data, "query_pre_attn_scalar"),
        "attention_cap": _number(data, "attn_logit_softcapping"), "logit_cap": _number(data, "final_logit_softcapping"),
        "embedding_scale": whole(data, "hidden_size") ** 0.5 if root else _number(data, "embedding_multiplier"),
        "residual_scale": _number(data, "residual_multiplier"),
        "attention_dropout": _number(data, "attention_dropout", "attn_pdrop"),
        "hidden_dropout": _number(data, *_HIDDEN_DROPOUT), "init_std": _number(data, "initializer_range"),
        "full_every": _full_every(data),
    }  # fmt: skip
    if scale := _number(data, "logits_scaling"):
        given["logit_scale"] = 1 / scale
    if multiplier := _number(data, "attention_multiplier"):
        given["query_size"] = multiplier**-2
    if data.get("use_parallel_residual") is not None:
        own["parallel"] = bool(data["use_parallel_residual"])
    fields = {key: value for key, value in given.items() if value is not None} | own
    fields["rotary"] = _rotary(data)
    fields["router"] = _router(data, own.get("router", {})) if experts else Router()
    return Traits.model_validate(fields)


def _number(data: Config, *names: str) -> float | None:
    """Return the first of these keys that holds a number."""
    value = first(data, names)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _activation(data: Config) -> str | None:
    name = first(data, _ACTIVATION)
    return _SAME.get(name, name) if isinstance(name, str) else None


def _full_every(data: Config) -> int | None:
    """Return every how many layers one has no window, where the listed layers repeat so."""
    listed = data.get("layer_types")
    if not isinstance(listed, list) or "full_attention" not in listed:
        return None
    every = listed.index("full_attention") + 1
    even = all(("full" in kind) == ((layer + 1) % every == 0) for layer, kind in enumerate(map(str, listed)))
    return every if even and every > 1 else None


def _rotary(data: Config) -> Rotary:
    """Return rotary positions: own keys, `rope_scaling`, or `rope_parameters` (of one or two kinds of layer)."""
    scaling = data.get("rope_parameters") or data.get("rope_scaling") or {}
    scaling = scaling if isinstance(scaling, Mapping) else {}
    local = scaling.get("sliding_attention") if isinstance(scaling.get("sliding_attention"), Mapping) else {}
    scaling = scaling.get("full_attention") or scaling
    kind = str(scaling.get("rope_type", scaling.get("type", "none")))
    size = whole(data, "head_dim", otherwise=0) or (
        whole(data, "hidden_size", "n_embd") // max(whole(data, "num_attention_heads", "n_head", otherwise=1), 1)
    )
    rotated = _number(data, "rotary_dim")
    given: dict[str, object] = {
        "base": _number(data, "rope_theta", "rotary_emb_base") or _number(scaling, "rope_theta"),
        "share": rotated / size if rotated else _number({**scaling, **data}, "partial_rotary_factor", "rotary_pct"),
        "local_base": _number(data, "rope_local_base_freq") or _number(local or {}, "rope_theta"),
        "skip_every": whole(data, "no_rope_layer_interval"),
    }  # fmt: skip
    if kind not in ("none", "default"):
        given |= {
            "kind": kind, "factor": _number(scaling, "factor"), "low": _number(scaling, "low_freq_factor"),
            "original": _number(scaling, "original_max_position_embeddings"),
            "high": _number(scaling, "high_freq_factor"), "mscale": _number(scaling, "mscale"),
            "mscale_all": _number(scaling, "mscale_all_dim"),
        }  # fmt: skip
        if kind == "yarn":
            given |= {"fast": _number(scaling, "beta_fast") or 32.0, "slow": _number(scaling, "beta_slow") or 1.0}
            given["rounded"] = scaling.get("truncate") is not False
    return Rotary.model_validate({key: value for key, value in given.items() if value is not None})


def _router(data: Config, own: Config) -> Router:
    grouped = whole(data, "n_group") > 1
    given = {
        "score": data.get("scoring_func"), "normalised": data.get("norm_topk_prob"),
        "groups": whole(data, "n_group") if grouped else None,
        "top_groups": whole(data, "topk_group") if grouped else None, "scale": _number(data, "routed_scaling_factor"),
        "aux_loss": _number(data, "router_aux_loss_coef", "aux_loss_alpha"),
    }  # fmt: skip
    if data.get("topk_method") == "noaux_tc":
        given["corrected"] = True
    return Router.model_validate({**{key: value for key, value in given.items() if value is not None}, **own})
