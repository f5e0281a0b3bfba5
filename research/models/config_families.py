"""Parameters of every language model that transformers has: its own modules against what syncline reads of a config.

Two questions. **Defaults**: a configuration class without arguments is, by its documentation, like a published model.
**Keys**: a family whose defaults are counted right may still be misread where a file says something else, so each whole
number, switch and empty key of it is doubled, halved, toggled or filled, one at a time; where that moves the count of
the module (four layers), syncline's must move with it. Right is within 0.5 %; what is not read must be refused by name.
Modules are made on torch's meta device, so nothing is allocated. Needs `pip install transformers torch`; about six CPU
minutes.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

from syncline.errors import SynclineError
from syncline.workload.family.config import shape_from_config
from syncline.workload.family.defaults import families

WITHIN, MOST_S = 0.005, 60.0
LANGUAGE, IMAGE = "language", "image"
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
#: What a class needs besides to build a model at all, or one of a kind that syncline reads.
_NEEDS: dict[str, dict[str, Any]] = {
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2, "intermediate_size": 3072},
    "gemma4_text": {"num_hidden_layers": 6, "hidden_size_per_layer_input": 0},
}


def run() -> dict[str, Any]:
    """Return how many families and changes of keys are right, wrong and refused, with those that are not right."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    warnings.simplefilter("ignore")
    try:
        import transformers
        from transformers.models.auto import modeling_auto as auto
    except ImportError:
        return {"missing": ["transformers is not installed"]}
    language, image = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    known = [name for name in sorted(families()) if name in language]
    return {
        "transformers": transformers.__version__,
        "defaults": of_defaults([*((LANGUAGE, name) for name in language), *((IMAGE, name) for name in image)]),
        "keys": of_keys(known),
    }


def of_defaults(named: list[tuple[str, str]]) -> dict[str, Any]:
    """Return which families are right by their class's defaults."""
    rows = [row for kind, name in named if (row := _by_default(kind, name)) is not None]
    right = [name for name, counted, said in rows if _right(said, counted)]
    wrong = [f"{name} {said / counted - 1:+.2%}" for name, counted, said in rows
             if isinstance(said, int) and not _right(said, counted)]  # fmt: skip
    refused = [f"{name}: {said}" for name, _, said in rows if isinstance(said, str)]
    return {
        "families": len(rows), "right": len(right), "wrong": wrong, "refused": len(refused), "refusals": refused,
        "names": right,
    }  # fmt: skip


def of_keys(names: list[str]) -> dict[str, Any]:
    """Return which changes of one key syncline follows."""
    rows = {name: _by_key(name) for name in names}
    tried = [row for row in rows.values() if row is not None]
    return {
        "families": len(tried), "changes": sum(row[0] for row in tried), "refused": sum(row[1] for row in tried),
        "wrong": [line for row in tried for line in row[2]],
        "not_built": [name for name, row in rows.items() if row is None],
    }  # fmt: skip


def _by_default(kind: str, name: str) -> tuple[str, int, int | str] | None:
    """Return what transformers' module has and what syncline says; None where the class's defaults build nothing."""
    found = _counted(kind, name, {})
    if found is None:
        return None
    counted, given = found
    said = _said(given)
    if kind == LANGUAGE and "text_config" in given and not _right(said, counted):  # some build the text part alone
        text = _said(given["text_config"] | {"tie_word_embeddings": given.get("tie_word_embeddings")})
        said = text if _right(text, counted) else said
    return f"{name} ({kind})", counted, said


def _by_key(name: str) -> tuple[int, int, list[str]] | None:
    """Return how many changes of a family moved its count, how many were refused, and those that were misread."""
    started = time.process_time()
    for kept in [_NEEDS.get(name, {}) | {key: 4} for key in _LAYERS] + [{}]:
        kept = kept | _NEEDS.get(name, {})
        whole = _counted(LANGUAGE, name, kept)
        if whole is not None and _right(_said(whole[1]), whole[0]):
            break
    else:
        return None
    tried, refused, wrong = 0, 0, list[str]()
    for key, value in sorted(whole[1].items()):
        for new in _others(key, value):
            in_time = time.process_time() - started < MOST_S
            changed = _counted(LANGUAGE, name, kept | {key: new}) if in_time else None
            if changed is None or changed[0] == whole[0]:
                continue
            said = _said(changed[1])
            tried, refused = tried + 1, refused + isinstance(said, str)
            if isinstance(said, int) and not _right(said, changed[0]):
                wrong.append(f"{name} {key} {value} -> {new}: {said / changed[0] - 1:+.1%}")
            break
    return tried, refused, wrong


def _others(key: str, value: object) -> list[object]:
    if key.startswith("_") or key.endswith("token_id"):
        return []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value, max(value // 2, 1)] if value > 1 else [2] if value == 1 else [1, 64]
    return [1, 64, True] if value is None else []


def _counted(kind: str, name: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the parameters of transformers' module and its config; None where it cannot be built."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    maker: Any = AutoModelForCausalLM if kind == LANGUAGE else AutoModelForImageTextToText
    try:
        config = CONFIG_MAPPING[name](**given)
        with torch.device("meta"):
            model = maker.from_config(config)
        model.tie_weights()
    except Exception:  # whatever sizes that do not fit raise
        return None
    return sum(each.numel() for each in model.parameters()), config.to_dict()


def _said(given: dict[str, Any]) -> int | str:
    try:
        return shape_from_config(given).params
    except SynclineError as error:
        return error.message
    except ValueError as error:
        return str(error).splitlines()[-1]


def _right(said: int | str, counted: int) -> bool:
    return isinstance(said, int) and abs(said / counted - 1) <= WITHIN
