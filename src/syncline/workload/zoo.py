"""Models by name: the shapes that ship with syncline.

>>> model("Llama3 70B").layers
80
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from syncline.describe.document import read_document
from syncline.errors import DescriptionError
from syncline.workload.layer_list import LayerList, layer_lists
from syncline.workload.shape import Shape

_FILES = ("gpt", "dense", "moe")
# Other spellings of the same model, as papers and result tables write them.
_ALIASES = {
    "gpt3": "gpt3-175b", "llama3.1-8b": "llama3-8b", "llama3.1-70b": "llama3-70b", "llama3.1-405b": "llama3-405b",
    "llama3.2-1b": "llama3-1b", "llama3.2-3b": "llama3-3b", "llama3.3-70b": "llama3-70b", "bloom": "bloom-176b",
    "mtnlg": "mt-nlg-530b", "turing-530b": "mt-nlg-530b", "palm": "palm-540b", "bert": "bert-large",
    "mixtral": "mixtral-8x7b", "deepseekv3": "deepseek-v3", "gpt-neox": "gpt-neox-20b", "resnet": "resnet-50",
}  # fmt: skip


def key_of(name: str) -> str:
    """Return a name without case, and with hyphens for spaces and underscores, so that spellings meet."""
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


def _find(name: str, known: Mapping[str, str]) -> str | None:
    """Return the model of a spelling; hyphens may be left out where that is not ambiguous (llama-33b, llama3-3b)."""
    if (key := key_of(name)) in known:
        return known[key]
    bare = {known[other] for other in known if other.replace("-", "") == key.replace("-", "")}
    return bare.pop() if len(bare) == 1 else None


@cache
def shapes() -> Mapping[str, Shape]:
    """Return every transformer that ships, by name."""
    found: dict[str, Shape] = {}
    for file in _FILES:
        text = (resources.files("syncline.workload") / "models" / f"{file}.yaml").read_text("utf-8")
        data: dict[str, Any] = read_document(text, f"{file}.yaml").data
        for name, fields in data["models"].items():
            fields = {"name": name, **data["defaults"], **fields}
            found[name] = Shape.model_validate({**fields, "traits": data["traits"][fields["traits"]]})
    return found


def names() -> tuple[str, ...]:
    """Return the names of every model that ships."""
    return (*shapes(), *layer_lists())


def model(name: str) -> Shape | LayerList:
    """Return the model of that name, or raise with the closest names."""
    keys = {key_of(known): known for known in names()} | {key_of(alias): known for alias, known in _ALIASES.items()}
    known = _find(name, keys)
    if known is None:
        close = difflib.get_close_matches(key_of(name), keys, n=4, cutoff=0.5)
        nearest = ", ".join(dict.fromkeys(keys[key] for key in close))
        raise DescriptionError(
            f'there is no model "{name}".',
            detail=f"Close: {nearest}." if nearest else "",
            hint="Give its shape (layers, hidden, heads, vocab) or a Hugging Face config.json; "
            "`syncline step volumes --models` lists the names.",
        )
    return shapes()[known] if known in shapes() else layer_lists()[known]


def transformer(name: str) -> Shape:
    """Return the transformer of that name."""
    found = model(name)
    if not isinstance(found, Shape):
        raise DescriptionError(f'"{name}" is a list of layers, not a transformer.', hint="Name a transformer.")
    return found
