"""What hardware exists: parts with rates, prices, power and the source of each number."""

from __future__ import annotations

from syncline.fabric.catalog.catalog import KINDS, Catalog, load_catalog
from syncline.fabric.catalog.parts import (
    Cable,
    Cpu,
    DenseFlops,
    Gpu,
    HostModel,
    LinkType,
    Nic,
    Part,
    Pcie,
    PricedPart,
    ScaleUp,
    ScaleUpSwitch,
    Switch,
    SwitchMode,
)

__all__ = [
    "KINDS",
    "Cable",
    "Catalog",
    "Cpu",
    "DenseFlops",
    "Gpu",
    "HostModel",
    "LinkType",
    "Nic",
    "Part",
    "Pcie",
    "PricedPart",
    "ScaleUp",
    "ScaleUpSwitch",
    "Switch",
    "SwitchMode",
    "load_catalog",
]
