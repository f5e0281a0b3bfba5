"""How the published weights of a model are kept, as its `config.json` (or `hf_quant_config.json`) says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from syncline.describe.quantity import Strict

Kept = Literal["bf16", "fp8", "fp4", "int8", "int4"]


class Stored(Strict):
    """What a checkpoint keeps its weights in; the embedding and the output layer stay in 16 bits."""

    weights: Kept
    experts_only: bool = Field(default=False, description="only routed experts; the rest stays in 16 bits")
    inputs: bool = Field(default=True, description="products take narrow inputs too; else 16 bits (AWQ, GPTQ, MXFP4)")


#: Methods whose name says the width; the others have it in a field.
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "awq": "int4"}
_WEIGHTS_ONLY = {"mxfp4", "awq", "gptq", "bitsandbytes", "auto-round", "hqq", "quanto"}


def stored_of(config: Mapping[str, Any]) -> Stored | None:
    """Return how a checkpoint keeps its weights; None where its file says nothing that is known.

    >>> stored_of({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["x.self_attn"]}})
    Stored(weights='fp4', experts_only=True, inputs=False)
    >>> stored_of({"model_type": "llama"})
    """
    found = config.get("quantization_config")
    if not isinstance(found, Mapping):
        return None
    method = str(found.get("quant_method", "")).lower()
    groups = list(_groups(found))
    kept = _of_groups(groups) or _of_words(found, method)
    if kept is None:
        return None
    skipped = (found.get(key) for key in ("modules_to_not_convert", "ignore", "exclude_modules"))
    listed = [str(name) for names in skipped if isinstance(names, list) for name in names]
    narrow = all(isinstance(group.get("input_activations"), Mapping) for group in groups) if groups else True
    return Stored(
        weights=kept, experts_only=any("self_attn" in name or "attention" in name for name in listed),
        inputs=narrow and method not in _WEIGHTS_ONLY and kept != "int4",
    )  # fmt: skip


def _groups(found: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    groups = found.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
            yield group


def _of_groups(groups: Iterable[Mapping[str, Any]]) -> Kept | None:
    """Return what the widest group is kept in."""
    kept = [_width(group["weights"].get("num_bits"), str(group["weights"].get("type", ""))) for group in groups]
    known: list[Kept] = [each for each in kept if each is not None]
    if not known:
        return None
    return max(known, key=_digits)


def _digits(kept: Kept) -> int:
    return int(kept[-1])


def _of_words(found: Mapping[str, Any], method: str) -> Kept | None:
    said = f"{method} {found.get('quant_algo', '')}".lower()
    if named := next((kept for name, kept in _METHODS.items() if name in said), None):
        return named  # type: ignore[return-value]
    if found.get("load_in_4bit") is True:
        return "int4"
    return "int8" if found.get("load_in_8bit") is True else _width(found.get("bits"), "int")


def _width(bits: object, kind: str) -> Kept | None:
    if kind == "float":
        return {4: "fp4", 8: "fp8"}.get(bits)  # type: ignore[call-overload,no-any-return]
    return {4: "int4", 8: "int8"}.get(bits)  # type: ignore[call-overload,no-any-return]
