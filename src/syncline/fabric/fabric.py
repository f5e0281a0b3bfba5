"""The Fabric: hosts, GPUs, NICs, switches and directed links, as frozen columns.

A fabric of 131,072 GPUs has millions of links, so devices and links are NumPy columns and the `Fabric` is a frozen
handle on them. Links 2k and 2k+1 are the two directions of one cable.

    fabric = load("dgx-h100-superpod")
    fabric.num_gpus                       # 1024
    fabric.link_name(fabric.out_links(fabric.device("leaf-03"))[0])
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.fabric.spec import ClusterSpec
from syncline.fabric.wiring import (
    NETWORK_TIERS,
    DeviceKind,
    Devices,
    FloatArray,
    IntArray,
    Links,
    LongArray,
    Tier,
    Wiring,
)

__all__ = ["NETWORK_TIERS", "DeviceKind", "Devices", "Fabric", "FloatArray", "IntArray", "Links", "LongArray", "Tier"]


@dataclass(frozen=True, eq=False, repr=False)
class Fabric(Wiring):
    """What the hardware is. Immutable; made by `build`, `load` or an importer."""

    spec: ClusterSpec = field(kw_only=True)
