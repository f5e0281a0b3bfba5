"""Parameters of every language model that transformers has, by its class's defaults: its own module against syncline.

A configuration class without arguments is, by its documentation, like a published model. The module is made on torch's
meta device, so nothing is allocated. Right is within 0.5 %; what is not read must be refused by name. Needs
`pip install transformers torch`; about four CPU minutes.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from syncline.errors import SynclineError
from syncline.workload.family.config import shape_from_config

WITHIN = 0.005


def run() -> dict[str, Any]:
    """Return how many are right, wrong and refused, with the names of those that are not right."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    warnings.simplefilter("ignore")
    try:
        import transformers
        from transformers.models.auto import modeling_auto as auto
    except ImportError:
        return {"missing": ["transformers is not installed"]}
    names = {
        "language": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "image": auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    rows = [row for kind, table in names.items() for name in table if (row := _row(kind, name)) is not None]
    found: dict[str, list[str]] = {"right": [], "wrong": [], "refused": []}
    for name, counted, said in rows:
        if isinstance(said, str):
            found["refused"].append(f"{name}: {said}")
        elif _right(said, counted):
            found["right"].append(name)
        else:
            found["wrong"].append(f"{name} {said / counted - 1:+.2%}")
    return {
        "transformers": transformers.__version__, "families": len(rows), "right": len(found["right"]),
        "wrong": found["wrong"], "refused": len(found["refused"]), "refusals": found["refused"],
        "names": found["right"],
    }  # fmt: skip


def _row(kind: str, name: str) -> tuple[str, int, int | str] | None:
    """Return what transformers' module has and what syncline says; None where the class's defaults build nothing."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    try:
        config = CONFIG_MAPPING[name]()
        maker: Any = AutoModelForCausalLM if kind == "language" else AutoModelForImageTextToText
        with torch.device("meta"):
            model = maker.from_config(config)
        model.tie_weights()
    except Exception:  # whatever a class of defaults that make no model raises
        return None
    given, counted = config.to_dict(), sum(each.numel() for each in model.parameters())
    said = _said(given)
    if kind == "language" and "text_config" in given and not _right(said, counted):  # some build the text part alone
        text = _said(given["text_config"] | {"tie_word_embeddings": given.get("tie_word_embeddings")})
        said = text if _right(text, counted) else said
    return f"{name} ({kind})", counted, said


def _right(said: int | str, counted: int) -> bool:
    return isinstance(said, int) and abs(said / counted - 1) <= WITHIN


def _said(given: dict[str, Any]) -> int | str:
    try:
        return shape_from_config(given).params
    except SynclineError as error:
        return error.message
    except ValueError as error:
        return str(error).splitlines()[-1]
