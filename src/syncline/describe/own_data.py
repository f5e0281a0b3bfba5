"""YAML tables that ship inside the package: constants, parts, releases, intervals."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def own_data(package: str, name: str) -> Any:
    """Return a table of ours, `own_data("sim", "data/recipes.yaml")`; read once, so do not change it."""
    return parsed((files("syncline") / package / name).read_text(encoding="utf-8"))


def parsed(text: str) -> Any:
    """Return plain YAML, by the parser in C where PyYAML was built with it: ten times as fast."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - both loaders are safe ones
