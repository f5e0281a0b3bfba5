"""What a config.json leaves out: its family's own defaults, in a table made from `transformers`' classes.

Only families in the table are read: each was counted against transformers' own module (`tools/families.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.describe.own_data import own_data
from syncline.workload.family.keys import EXPERTS, NAMES, TOP_K, Config

#: Keys that mean the same: where a config has one of them, its family's default of another does not count.
_GROUPS = (
    *NAMES.values(),
    EXPERTS,
    TOP_K,
    ("layer_types", "layers_block_type", "full_attn_idxs", "attn_layer_indices"),
)


def families() -> Mapping[str, Config]:
    """Return the families that syncline reads, each with what its configs leave out."""
    table: Mapping[str, Config] = own_data("workload", "data/families.yaml")["families"]
    return table


def traits() -> Config:
    """Return what families have whatever their sizes: lists of families, or values by family."""
    table: Config = own_data("workload", "data/traits.yaml")
    return table


def with_defaults(config: Config, family: str) -> dict[str, Any]:
    """Return a config with its family's defaults where it says nothing."""
    default = families().get(family, {})
    stated = {name for group in _GROUPS if any(config.get(key) is not None for key in group) for name in group}
    return {key: value for key, value in default.items() if key not in stated} | dict(config)
