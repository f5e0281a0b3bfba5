"""Every number of a config.json that decides parameters, changed one at a time: transformers' module against syncline.

A family whose defaults are counted right may still be misread where a file says something else. So each whole number,
switch and empty key of a family's configuration class is doubled, halved, toggled or filled; where that moves the count
of transformers' own module (on torch's meta device, four layers), syncline's must move with it to within 0.5 %, or the
file be refused. Needs `pip install transformers torch`; about two CPU minutes.
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
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
#: What a class needs besides to build a model at all, or one of a kind that syncline reads.
_NEEDS: dict[str, dict[str, Any]] = {
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2, "intermediate_size": 3072},
    "gemma4_text": {"num_hidden_layers": 6, "hidden_size_per_layer_input": 0},
}


def run() -> dict[str, Any]:
    """Return how many changes were followed, and each that was not."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    warnings.simplefilter("ignore")
    try:
        import transformers
        from transformers.models.auto import modeling_auto as auto
    except ImportError:
        return {"missing": ["transformers is not installed"]}
    known = [name for name in sorted(families()) if name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES]
    rows = {name: _family(name) for name in known}
    tried = [row for row in rows.values() if row is not None]
    return {
        "transformers": transformers.__version__, "families": len(tried), "changes": sum(row[0] for row in tried),
        "refused": sum(row[1] for row in tried), "wrong": [line for row in tried for line in row[2]],
        "not_built": [name for name, row in rows.items() if row is None],
    }  # fmt: skip


def _family(name: str) -> tuple[int, int, list[str]] | None:
    """Return how many changes of a family moved its count, how many were refused, and those that were misread."""
    started = time.process_time()
    for kept in [_NEEDS.get(name, {}) | {key: 4} for key in _LAYERS] + [{}]:
        kept = kept | _NEEDS.get(name, {})
        whole = _counted(name, kept)
        if whole is not None and _right(_said(whole[1]), whole[0]):
            break
    else:
        return None
    tried, refused, wrong = 0, 0, list[str]()
    for key, value in sorted(whole[1].items()):
        for new in _others(key, value):
            changed = _counted(name, kept | {key: new}) if time.process_time() - started < MOST_S else None
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


def _counted(name: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the parameters of transformers' module and its config; None where it cannot be built."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    try:
        config = CONFIG_MAPPING[name](**given)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        model.tie_weights()
    except Exception:  # whatever sizes that do not fit raise
        return None
    return sum(each.numel() for each in model.parameters()), config.to_dict()


def _said(given: dict[str, Any]) -> int | str:
    try:
        return shape_from_config(given).params
    except (SynclineError, ValueError) as error:
        return str(error)


def _right(said: int | str, counted: int) -> bool:
    return isinstance(said, int) and abs(said / counted - 1) <= WITHIN
