"""The builders: one file a topology, which holds its description and how it is wired.

A new topology is one file with a subclass of `NetworkSpec`, and its class in `_Registered` below; cluster files, short
forms ("torus 4x4x4"), error messages and the documentation know it from there.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from syncline.fabric.topology.dragonfly import Dragonfly
from syncline.fabric.topology.explicit import Explicit
from syncline.fabric.topology.fat_tree import FatTree
from syncline.fabric.topology.leaf_spine import LeafSpine
from syncline.fabric.topology.multi_plane import MultiPlane
from syncline.fabric.topology.network import NetworkSpec
from syncline.fabric.topology.optical import Optical
from syncline.fabric.topology.rail import RailOptimized
from syncline.fabric.topology.rail_only import RailOnly
from syncline.fabric.topology.torus import Torus

_Registered = FatTree | LeafSpine | RailOptimized | RailOnly | MultiPlane | Dragonfly | Torus | Optical | Explicit
AnyNetwork = Annotated[_Registered, Field(discriminator="topology")]
TOPOLOGIES: dict[str, type[NetworkSpec]] = {
    get_args(made.model_fields["topology"].annotation)[0]: made for made in get_args(_Registered)
}
"""Every topology by the name it has in a cluster file."""

__all__ = ["TOPOLOGIES", "AnyNetwork", "NetworkSpec"]
