"""The fields of a model that a framework must be told, and dialects: how a framework names each of them.

    missing = MEGATRON.lacks(fields_of(shape))     # words for what it cannot express
    MEGATRON.arguments(fields_of(shape))           # {"--num-layers": 32, ...}

A dialect is a table from fields to arguments. A field that it has no row for must have the neutral value of `_NEUTRAL`:
what every framework does where nothing is said. So a framework is refused a model by what its own table leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from syncline.errors import PlanError
from syncline.workload.shape import Shape
from syncline.workload.traits import Rotary, Router

Value = bool | int | float | str


class Fields(dict[str, Any]):
    """Every field of one model by its name: sizes, switches and words."""


Arguments = Mapping[str, object]
#: A framework's word for a field: the argument that takes its value, or what makes arguments of it; None: it cannot.
Row = str | Callable[[Fields], Arguments | None]

_Table = Mapping[str, tuple[str, Value]]

#: What each field says (with its value), and the value that needs no argument. Fields without one are every dialect's.
_NEUTRAL: dict[str, tuple[str, Value]] = {
    "causal": ("attention in both directions", True), "layer_kinds": ("{} layers", ""), "towers": ("a {} tower", ""),
    "query_gate": ("gated attention output", False), "latent": ("experts of a latent size of {}", 0),
    "norm": ("{} normalisation", "rms"), "norm_offset": ("normalisation weights added to 1", False),
    "norm_place": ("normalisation {} each block", "before"), "parallel": ("attention and block in parallel", False),
    "norms": ("{} normalisations a layer", 2), "qk_norm": ("queries and keys normalised by {}", ""),
    "bias_qkv": ("biases on queries, keys and values: {}", False), "bias_out": ("a bias behind attention: {}", False),
    "bias_ffn": ("biases in feed-forward blocks: {}", False), "head_bias": ("a bias on the output layer", False),
    "gated": ("a gated block: {}", True), "activation": ("{} activation", "silu"),
    "activation_limit": ("activations clamped at {}", 0.0), "positions": ("{} positions", "rotary"),
    "rope_share": ("{} of each head rotated", 1.0), "rope_kind": ("{} scaling of rotary positions", "none"),
    "rope_factor": ("rotary positions stretched by {}", 1.0), "rope_original": ("{} positions before the stretch", 0),
    "rope_local_base": ("another rotary base ({}) in layers with a window", 0.0),
    "rope_skip": ("one layer in {} without positions", 0), "window": ("a sliding window of {}", 0),
    "full_every": ("one layer in {} without a window", 0), "sinks": ("attention sinks", False),
    "attention_cap": ("attention logits capped at {}", 0.0), "logit_cap": ("output logits capped at {}", 0.0),
    "query_size": ("scores divided by the root of {}", 0.0), "embedding_scale": ("embeddings scaled by {:.4g}", 1.0),
    "residual_scale": ("residuals scaled by {}", 1.0), "logit_scale": ("logits scaled by {}", 1.0),
    "kv_rank": ("latent attention", 0), "q_rank": ("queries of rank {}", 0), "experts": ("{} experts", 0),
    "shared_ffn": ("a shared expert", 0), "dense_layers": ("{} layers without experts", 0),
    "router_score": ("experts scored by {}", "softmax"), "router_normalised": ("normalised expert weights: {}", True),
    "router_groups": ("experts in {} groups", 0), "router_scale": ("expert weights scaled by {}", 1.0),
    "router_corrected": ("a correction bias of the router", False), "router_biased": ("a bias of the router", False),
    "shared_gate": ("a gate before the shared expert", False), "predict_layers": ("{} layers of token prediction", 0),
}  # fmt: skip
#: What training does beside the model; a framework without a word for one leaves it to its user.
TRAINED: dict[str, tuple[str, Value]] = {
    "attention_dropout": ("dropout of attention {}", 0.0), "hidden_dropout": ("dropout {}", 0.0),
    "init_std": ("initialisation with standard deviation {}", 0.02),
    "router_aux_loss": ("balancing loss of experts with coefficient {}", 0.0),
}  # fmt: skip


def fields_of(shape: Shape) -> Fields:
    """Return every field of a model, or raise where only its sizes are known."""
    t, moe, mla = shape.traits, shape.moe, shape.mla
    if t is None:
        raise PlanError(
            f"syncline knows the sizes of {shape.name} ({shape.source}), not what its layers compute.",
            hint="Plan without `framework` and write the model's own arguments, or plan for deepspeed, which leaves "
            "the model to your script.",
        )
    learned = shape.positions > 0
    rotary = Rotary() if learned or t.alibi else t.rotary
    router = t.router if moe else Router()
    window = shape.window if shape.window_share else 0
    kinds = sorted({mixer.kind for mixer in shape.mixers}) or (["several kinds of"] if shape.hybrid else [])
    return Fields({
        # Where every layer has experts there is no other block, and frameworks that want its width want theirs.
        "ffn": moe.ffn if moe and not shape.dense_layers else shape.ffn_size, "layers": shape.layers,
        "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.num_kv_heads,
        "head_size": shape.qk_size, "vocab": shape.vocab, "tied": shape.tied,
        "causal": shape.causal, "layer_kinds": " and ".join(kinds),
        "towers": " and ".join(tower.name for tower in shape.towers), "query_gate": shape.query_gate,
        "norm": t.norm or ("layer" if shape.norm_biases else "rms"), "norm_eps": t.norm_eps,
        "norm_offset": t.norm_offset, "norm_place": t.norm_place, "parallel": t.parallel,
        "norms": 2 if t.norm == "none" or t.norm_place == "around" else shape.norms,
        "qk_norm": "all heads at once" if t.qk_norm_whole else "head" if shape.qk_norm else "",
        "bias_qkv": shape.biases or shape.qkv_biases, "bias_out": shape.biases, "bias_ffn": shape.biases,
        "head_bias": t.head_bias, "gated": shape.gated,
        "activation": t.activation or ("silu" if shape.gated else "gelu"), "activation_limit": t.activation_limit,
        "positions": "learned" if learned else "alibi" if t.alibi else "rotary", "num_positions": shape.positions,
        "rope_base": rotary.base, "rope_share": rotary.share, "rope_local_base": rotary.local_base,
        "rope_skip": rotary.skip_every, "rope_kind": rotary.kind, "rope_factor": rotary.factor,
        "rope_original": rotary.original, "rope_low": rotary.low, "rope_high": rotary.high, "rope_fast": rotary.fast,
        "rope_slow": rotary.slow, "rope_mscale": rotary.mscale, "rope_mscale_all": rotary.mscale_all,
        "rope_rounded": rotary.rounded, "window": window,
        "full_every": 0 if not window or shape.window_share == 1 else t.full_every or -1, "sinks": t.sinks,
        "attention_cap": t.attention_cap, "logit_cap": t.logit_cap,
        "query_size": 0.0 if t.query_size == shape.qk_size else t.query_size, "embedding_scale": t.embedding_scale,
        "residual_scale": t.residual_scale, "logit_scale": t.logit_scale,
        "attention_dropout": t.attention_dropout, "hidden_dropout": t.hidden_dropout, "init_std": t.init_std,
        "kv_rank": mla.kv_rank if mla else 0, "q_rank": mla.q_rank if mla else 0,
        "rope_size": mla.rope_size if mla else 0, "nope_size": mla.nope_size if mla else 0, "value_size": shape.v_size,
        "experts": moe.experts if moe else 0, "top_k": moe.top_k if moe else 0, "expert_ffn": moe.ffn if moe else 0,
        "shared_ffn": moe.shared_ffn if moe else 0, "latent": moe.latent if moe else 0,
        "dense_layers": shape.dense_layers if moe else 0, "router_score": router.score,
        "router_normalised": router.normalised, "router_groups": router.groups, "router_top_groups": router.top_groups,
        "router_scale": router.scale, "router_corrected": router.corrected, "router_biased": router.biased,
        "shared_gate": router.shared_gate, "router_aux_loss": router.aux_loss,
        "predict_layers": shape.predict_layers,
    })  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """How one program, or one kind of layer of it, names fields; `fixed` are values that it has without an argument."""

    name: str
    rows: Mapping[str, Row]
    fixed: Mapping[str, Value]

    def lacks(self, fields: Fields) -> list[str]:
        """Return words for every field that this dialect cannot say."""
        more = {name: (f"{name.replace('_', ' ')} {{}}", fields[name]) for name in (*self.rows, *self.fixed)}
        return self._unsaid(fields, {**more, **_NEUTRAL}, without=TRAINED)

    def leaves(self, fields: Fields) -> list[str]:
        """Return words for what training needs beside the model and this dialect has no argument for."""
        return self._unsaid(fields, TRAINED)

    def _unsaid(self, fields: Fields, table: _Table, without: _Table = MappingProxyType({})) -> list[str]:
        return [words.format(fields[name]) for name, (words, neutral) in table.items()
                if name not in without and self._lacks(name, fields, neutral)]  # fmt: skip

    def _lacks(self, name: str, fields: Fields, neutral: Value) -> bool:
        if name not in self.rows:
            return bool(fields[name] != self.fixed.get(name, neutral))
        row = self.rows[name]
        return callable(row) and row(fields) is None

    def arguments(self, fields: Fields) -> dict[str, object]:
        """Return the arguments of every field, in the order of the table."""
        found: dict[str, object] = {}
        for name, row in self.rows.items():
            found |= {row: fields[name]} if isinstance(row, str) else row(fields) or {}
        return found


def dialects(*kinds: tuple[str, Mapping[str, Row], Mapping[str, Value]]) -> tuple[Dialect, ...]:
    """Return the kinds of layers of a framework, plain ones first: name, rows and what each has fixed."""
    return tuple(Dialect(*kind) for kind in kinds)


def dialect_of(title: str, dialects: Iterable[Dialect], shape: Shape) -> Dialect:
    """Return the first dialect of a framework that expresses a model, or raise with what the nearest one lacks."""
    fields = fields_of(shape)
    lacking = [(dialect.lacks(fields), dialect) for dialect in dialects]
    fewest, dialect = min(lacking, key=lambda each: len(each[0]))
    if fewest:
        raise PlanError(
            f"{title} cannot build {shape.name}: it has no argument for {'; '.join(fewest)}.",
            hint="Plan for another framework, or without `framework` and write the model's own arguments.",
        )
    return dialect


def when(field: str, **arguments: object) -> Callable[[Fields], Arguments]:
    """Return a row that writes arguments where a field is not zero, false or empty."""
    return lambda fields: arguments if fields[field] else {}


def flag(field: str, name: str) -> Callable[[Fields], Arguments]:
    """Return a row that writes an argument's name and the field's value where it is not zero."""
    return lambda fields: {name: fields[field]} if fields[field] else {}


def needed(field: str, name: str) -> Callable[[Fields], Arguments | None]:
    """Return a row of a kind of layers that has this at all times."""
    return lambda fields: {name: fields[field]} if fields[field] else None


def shared_experts(name: str) -> Callable[[Fields], Arguments | None]:
    """Return a row that counts shared experts of the routed ones' width."""

    def row(fields: Fields) -> Arguments | None:
        each = fields["expert_ffn"] or 1
        return None if fields["shared_ffn"] % each else {name: fields["shared_ffn"] // each}

    return row


def scaled_by_root(fields: Fields) -> Arguments | None:
    """Row of frameworks whose embedding is always scaled by the root of the hidden size."""
    return {} if abs(fields["embedding_scale"] / fields["hidden"] ** 0.5 - 1) < 1e-6 else None
